use super::*;
use crate::pseudo_random::numbers;

fn vectors(words: usize, dimensions: usize, peak: u64) -> Vec<i16> {
    let mut next = numbers(88_172_645_463_325_252);
    (0..words * dimensions).map(|_| ((next() % (2 * peak + 1)) as i64 - peak as i64) as i16).collect()
}

/// The definition: every free word is compared.
fn plain(vectors: &[i16], dimensions: usize, k: usize, metric: Metric) -> Vec<u32> {
    let words = Words::new(vectors, dimensions, metric);
    let (mut free, mut sets) = ((0..words.left).collect::<Vec<_>>(), Vec::new());
    while free.len() >= k {
        let at = free.remove(0);
        free.sort_by(|&one, &other| words.key(at, one).total_cmp(&words.key(at, other)).then(one.cmp(&other)));
        sets.push(at as u32);
        sets.extend(free.drain(..k - 1).map(|at| at as u32));
        free.sort_unstable();
    }
    sets.extend(free.into_iter().map(|at| at as u32));
    sets
}

#[test]
fn sets_are_those_of_the_definition() {
    for (words, dimensions, peak, k) in
        [(5, 3, 40, 2), (64, 4, 1, 5), (200, 7, 32_767, 3), (400, 20, 300, 4), (40, 2, 3, 40), (3, 2, 9, 4)]
    {
        for metric in [Metric::Euclidean, Metric::Cosine] {
            let mut vectors = vectors(words, dimensions, peak);
            vectors[..dimensions].fill(0);
            vectors[dimensions..2 * dimensions].fill(i16::MIN);
            let expected = plain(&vectors, dimensions, k, metric);
            assert_eq!(output_sets(&vectors, dimensions, k, metric).unwrap(), expected, "{words} {peak} {metric:?}");
        }
    }
}

#[test]
fn what_is_no_table_is_refused() {
    assert!(output_sets(&[1, 2, 3], 2, 2, Metric::Cosine).is_err());
    assert!(output_sets(&[1, 2], 0, 2, Metric::Cosine).is_err());
    assert!(output_sets(&[1, 2], 1, 1, Metric::Cosine).is_err());
    assert_eq!(output_sets(&[], 2, 2, Metric::Cosine).unwrap(), [0u32; 0]);
}
