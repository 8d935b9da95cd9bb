//! Texts as vectors: sums of the vectors of their words, scaled to length 127 and rounded (docs/spec/surrogate.md#words-encoder).

/// Words of one text, at most: this number of int16 numbers adds up in int32.
pub const MOST_WORDS: usize = 65_535;

/// Adds the vectors of some words, rows of a matrix of `sum.len()` columns; words that are none of its rows add nothing.
pub fn add(vectors: &[i16], words: impl Iterator<Item = u32>, sum: &mut [i32]) {
    for word in words {
        let start = word as usize * sum.len();
        if let Some(vector) = vectors.get(start..start + sum.len()) {
            sum.iter_mut().zip(vector).for_each(|(sum, &number)| *sum += i32::from(number));
        }
    }
}

/// The sum's direction as integers of length about 127, halves to even; false if the sum is zero, which has none.
///
/// The sum of squares is exact, and every operation after it is one correctly rounded operation.
pub fn quantise(sum: &[i32], vector: &mut [i8]) -> bool {
    let squares = sum.iter().map(|&number| u128::from(i64::from(number).unsigned_abs().pow(2))).sum::<u128>();
    let length = (squares as f64).sqrt();
    for (number, &sum) in vector.iter_mut().zip(sum) {
        *number = if squares > 0 { ((127.0 * f64::from(sum)) / length).round_ties_even() as i8 } else { 0 };
    }
    squares > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_number_and_nothing_has_no_direction() {
        let mut vector = [9i8; 6];
        assert!(quantise(&[1, 3, 5, 252, 31, 4], &mut vector)); // of length 254
        assert_eq!(vector, [0, 2, 2, 126, 16, 2]);
        assert!(!quantise(&[0; 6], &mut vector));
        assert_eq!(vector, [0; 6]);
        assert!(quantise(&[i32::MAX, i32::MIN, 0, 0, 0, 0], &mut vector));
        assert_eq!(vector, [90, -90, 0, 0, 0, 0]);
    }

    #[test]
    fn words_beyond_the_matrix_add_nothing() {
        let mut sum = [1, 1];
        add(&[5, -7, i16::MAX, i16::MIN], [1, 0, 2, u32::MAX].into_iter(), &mut sum);
        assert_eq!(sum, [32_773, -32_774]);
    }
}
