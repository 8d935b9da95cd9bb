//! How many of independent trials succeed, each with its own probability (Poisson-binomial).

/// `P[X >= t]` for `t = 0 ..= min(most, trials)`: every entry takes two products and a sum per trial, all of them
/// non-negative and rounded once each. The caller adds a bound of that rounding.
pub fn upper_tail(chances: &[f64], most: usize) -> Vec<f64> {
    let mut tail = vec![1.0];
    tail.resize(chances.len().min(most) + 1, 0.0);
    for (seen, chance) in chances.iter().enumerate() {
        let mut below = 1.0;
        for likely in tail.iter_mut().take(seen + 2).skip(1) {
            let before = *likely;
            *likely = chance * below + (1.0 - chance) * before;
            below = before;
        }
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coins_and_certain_trials() {
        assert_eq!(upper_tail(&[0.5; 3], 3), [1.0, 0.875, 0.5, 0.125]);
        assert_eq!(upper_tail(&[0.5; 3], 1), [1.0, 0.875]);
        assert_eq!(upper_tail(&[1.0, 0.0, 0.25], 9), [1.0, 1.0, 0.25, 0.0]);
        assert_eq!(upper_tail(&[], 4), [1.0]);
    }
}
