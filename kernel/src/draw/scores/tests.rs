use super::*;
use crate::draw::weights::{running_sums, Weights};

const KEY: [u8; 32] = [5; 32];
const SIZES: [usize; 13] = [2, 3, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 4353, 9001];

fn scores(m: usize) -> Vec<f32> {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30];
    let score = |i: usize| if i % 101 == 7 { odd[i % 5] } else { (i * 7919 % 1000) as f32 / 50.0 - 4.0 };
    (0..m).map(score).collect()
}

fn law(m: usize, epsilon: f64) -> Law {
    let top = (46.min(62 - (m - 1).ilog2() - 1) as f64).exp2();
    Law::new(m, epsilon, -3.0, 16.0, (top * (-epsilon / 2.0).exp()) as u64 + 1).unwrap()
}

#[test]
fn rows_draw_as_their_weights_in_one_list() {
    let keys = [KEY];
    for (m, epsilon) in SIZES.into_iter().flat_map(|m| [2.0, 40.0, 250.0].map(|epsilon| (m, epsilon))) {
        let (law, scores) = (law(m, epsilon), scores(m));
        let weights = weights(&law, &scores, 1).unwrap();
        let sums = running_sums(&weights).unwrap();
        let mut ends = Vec::new();
        law.ends(&scores, &mut ends);
        assert_eq!(
            ends,
            sums.iter()
                .copied()
                .skip(255)
                .step_by(256)
                .chain(sums.last().copied().filter(|_| m % 256 > 0))
                .collect::<Vec<_>>()
        );
        let count = 10;
        let (records, positions) = (vec![0; count], (0..count as u64).collect::<Vec<_>>());
        let draws = Occurrences::new(&keys, &records, &positions).unwrap();
        let drawn = choose(&law, &scores.repeat(count), &draws, 1, 2).unwrap();
        let stream = Stream::new(&KEY, 1).unwrap();
        for (&position, drawn) in positions.iter().zip(drawn) {
            let mut slot = vec![0; law.width()];
            stream.slot(position, &mut slot).unwrap();
            let expected = Weights::from_running(&sums).draw(&slot, &mut stream.overflow(position)).unwrap();
            assert_eq!(drawn as usize, expected, "m {m}, epsilon {epsilon}");
        }
    }
}

#[test]
fn rows_with_epsilons_of_their_own_draw_as_each_would_alone() {
    let (keys, m) = ([KEY], 300);
    let epsilons = [0.5, 40.0, 2.0, 250.0, 1e-6, 12.0];
    let (laws, row) = (epsilons.map(|epsilon| law(m, epsilon)), scores(m));
    let (records, positions) = (vec![0; epsilons.len()], (0..epsilons.len() as u64).collect::<Vec<_>>());
    let draws = Occurrences::new(&keys, &records, &positions).unwrap();
    let drawn = choose_each(&laws, &row.repeat(epsilons.len()), &draws, 1, 2).unwrap();
    for (at, law) in laws.iter().enumerate() {
        let (records, positions) = ([0], [at as u64]);
        let alone = Occurrences::new(&keys, &records, &positions).unwrap();
        assert_eq!(choose(law, &row, &alone, 1, 1).unwrap(), [drawn[at]]);
    }
    assert!(choose_each(&laws[..3], &row.repeat(epsilons.len()), &draws, 1, 1).is_err());
}

#[test]
fn both_widths_and_both_instruction_sets_agree() {
    for (m, epsilon) in SIZES.into_iter().flat_map(|m| [5.0, 250.0].map(|epsilon| (m, epsilon))) {
        let (law, single) = (law(m, epsilon), scores(m));
        let double = single.iter().copied().map(f64::from).collect::<Vec<_>>();
        assert_eq!(weights(&law, &single, 1).unwrap(), weights(&law, &double, 2).unwrap());
        let (mut best, mut plain) = (Vec::new(), Vec::new());
        assert_eq!(law.ends(&single, &mut best), law.ends_plain(&double, &mut plain));
        assert_eq!(best, plain);
    }
}

#[test]
fn weights_that_need_no_exponential_are_what_it_would_give() {
    for epsilon in [64.0, 70.0, 100.0, 250.0, 1e5] {
        let (law, slow) = (law(5000, epsilon), Law { far: f64::INFINITY, ..law(5000, epsilon) });
        assert!(law.far.is_finite());
        for best in [16.0f32, 3.0, -2.9, -3.0] {
            let scores = scores(5000).into_iter().map(|score| score.min(best)).collect::<Vec<_>>();
            assert_eq!(weights(&law, &scores, 1).unwrap(), weights(&slow, &scores, 1).unwrap());
        }
    }
    assert!(law(5000, 30.0).far.is_infinite());
}

#[test]
fn weights_stay_in_their_band_and_the_best_has_the_greatest() {
    for epsilon in [1e-9, 1.0, 64.0, 1e6] {
        let law = law(300, epsilon);
        for scores in [scores(300), vec![f32::NAN; 300], vec![f32::NEG_INFINITY; 300]] {
            let weights = weights(&law, &scores, 1).unwrap();
            assert!(weights.iter().all(|&weight| (law.least as u64..=1 << 46).contains(&weight)));
            assert_eq!(weights.iter().max(), Some(&(1 << 46)));
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    assert!(Law::new(1, 1.0, 0.0, 1.0, 1).is_err());
    for (epsilon, low, high) in
        [(0.0, 0.0, 1.0), (f64::NAN, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, f64::NAN, 1.0), (1.0, -1e308, 1e308)]
    {
        assert!(Law::new(3, epsilon, low, high, 1).is_err());
    }
    assert!(Law::new(3, 1.0, 0.0, 1.0, 0).is_err());
    assert!(Law::new(3, 1.0, 0.0, 1.0, (1 << 46) + 1).is_err());
    let (law, keys) = (law(3, 1.0), [KEY]);
    let draws = Occurrences::new(&keys, &[0, 0], &[0, 1]).unwrap();
    assert!(choose(&law, &[0.0f32; 5], &draws, 1, 1).is_err());
    assert!(choose(&law, &[0.0f32; 6], &draws, 1, 1).is_ok());
}
