//! Noise on a grid for latents (docs/spec/privacy.md#grid-noise): clip, round toward zero to multiples of
//! 2^-16, add one independent draw to every coordinate, round to the grid.
//!
//! Between clip and noise everything is a whole number of steps, so that the bound holds exactly.

use std::collections::HashSet;

use zeroize::{Zeroize, Zeroizing};

use crate::draw::exp::Real;
use crate::draw::lanes::AHEAD;
use crate::draw::laplace::{discrete_laplace, is_rate, made_laplace};
use crate::draw::radial::normal_size;
use crate::draw::stream::{Stream, Words};
use crate::draw::uniforms::signed;
use crate::errors::{Error, Result};
use crate::threads;

/// Steps per unit.
const STEPS: f64 = 65_536.0;

/// Largest bound of a clip, in steps: sums of squares then fit 128 bits many times over.
const LARGEST: f64 = (1u64 << 40) as f64;

/// Coordinates beyond it count as it where lengths are computed, so that squares stay finite.
const FAR: f64 = 1e100;

/// Coordinates whose words are at hand together.
const AT_ONCE: usize = 256;

/// Coordinates that one thread takes at a time.
const COORDINATES_AT_ONCE: usize = 1 << 16;

/// What a clip bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// The size of every coordinate.
    Value,
    /// The sum of a row's sizes.
    L1,
    /// The length of a row.
    L2,
}

/// A bound in whole steps.
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    limit: f64,
    norm: Norm,
}

impl Clip {
    /// The bound taken down to the grid.
    pub fn new(bound: f64, norm: Norm) -> Result<Self> {
        let limit = (bound * STEPS).floor();
        if !(1.0..=LARGEST).contains(&limit) {
            return Err(Error::policy("a clip is from 2^-16 to 2^24"));
        }
        Ok(Self { limit, norm })
    }

    /// Whole steps within the bound, from finite coordinates in steps.
    fn round(self, row: &mut [f64]) {
        match self.norm {
            Norm::Value => {
                for step in row {
                    *step = step.clamp(-self.limit, self.limit).trunc();
                }
            }
            Norm::L1 => self.shrink(row, f64::abs, |step| step),
            Norm::L2 => self.shrink(row, |step| step * step, |step| step * step),
        }
    }

    /// Scales a row whose norm exceeds the bound; a rounded row that still exceeds it, by float arithmetic's last
    /// bits, is scaled a little more.
    fn shrink(self, row: &mut [f64], size: fn(f64) -> f64, whole: fn(u128) -> u128) {
        for step in &mut *row {
            *step = step.clamp(-FAR, FAR);
        }
        let power = |sum: f64| if self.norm == Norm::L2 { sum.sqrt() } else { sum };
        let norm = power(row.iter().map(|&step| size(step)).sum());
        let mut factor = if norm > self.limit { self.limit / norm } else { 1.0 };
        let most = whole(self.limit as u128);
        while row.iter().map(|step| whole((step * factor).trunc().abs() as u128)).sum::<u128>() > most {
            factor *= 1.0 - 1e-12;
        }
        for step in row {
            *step = (*step * factor).trunc();
        }
    }
}

/// The noise of one coordinate, in steps.
#[derive(Clone, Copy, Debug)]
pub enum Noise {
    /// Standard deviation.
    Gaussian(f64),
    /// Rate per step, a fraction in lowest terms.
    Laplace(u64, u64),
}

impl Noise {
    /// Gaussian noise of a standard deviation in units; inflated by 1 + 2^-20 against the rounding of its draws.
    pub fn gaussian(sigma: f64) -> Result<Self> {
        let steps = sigma * (1.0 + 1.0 / f64::from(1 << 20)) * STEPS;
        if sigma > 0.0 && steps.is_finite() {
            Ok(Self::Gaussian(steps))
        } else {
            Err(Error::policy("sigma is finite and above 0"))
        }
    }

    /// Discrete Laplace noise of a rate per step.
    pub fn laplace(num: u64, den: u64) -> Result<Self> {
        if is_rate(num, den) {
            Ok(Self::Laplace(num, den))
        } else {
            Err(Error::policy("a rate per step is a fraction in lowest terms of whole numbers from 1 to 2^48"))
        }
    }

    /// Adds a row's noise: the noise of coordinate i comes from position i.
    fn add(self, stream: &Stream<'_>, row: &mut [f64]) -> Result<()> {
        let mut words: Words = Zeroizing::new(vec![0; AT_ONCE * AHEAD.max(2)]);
        for (first, some) in (0u64..).step_by(AT_ONCE).zip(row.chunks_mut(AT_ONCE)) {
            match self {
                Self::Gaussian(sigma) => {
                    let words = words.get_mut(..2 * some.len()).unwrap_or_default();
                    stream.words(2 * first, words)?;
                    for (step, &[high, low]) in some.iter_mut().zip(words.as_chunks::<2>().0) {
                        let u = signed(high, low);
                        *step = (*step + normal_size(u.abs()).copysign(u) * sigma).round_ties_even();
                    }
                }
                Self::Laplace(num, den) => {
                    let words = words.get_mut(..AHEAD * some.len()).unwrap_or_default();
                    stream.ahead(0, first.., words);
                    for ((position, step), ahead) in (first..).zip(some).zip(words.as_chunks::<AHEAD>().0) {
                        let noise = match made_laplace(num, den, ahead.iter()) {
                            Some(noise) => noise,
                            None => discrete_laplace(num, den, &mut stream.overflow(position).with(ahead))?,
                        };
                        *step = (*step as i64).saturating_add(noise) as f64;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Latents with noise, row after row of `dimensions` coordinates, a record key for each row.
pub fn noisy<T: Real>(
    latents: &[T],
    dimensions: usize,
    keys: &[[u8; 32]],
    purpose: u32,
    clip: Option<Clip>,
    noise: Noise,
    threads: usize,
) -> Result<Vec<f32>> {
    if !(1..=1 << 32).contains(&dimensions) || keys.len().checked_mul(dimensions) != Some(latents.len()) {
        return Err(Error::input(format!(
            "{} record keys for rows of {dimensions} coordinates need as many numbers; got {}",
            keys.len(),
            latents.len()
        )));
    }
    let mut seen = HashSet::with_capacity(keys.len());
    if !keys.iter().all(|key| seen.insert(key)) {
        return Err(Error::input("two rows have one record key: they would have the same noise"));
    }
    let parts = threads::over_rows(keys.len(), (COORDINATES_AT_ONCE / dimensions).max(1), threads, |some| {
        let mut row = Zeroizing::new(vec![0.0; dimensions]);
        let mut all = Vec::with_capacity(some.len() * dimensions);
        for at in some {
            let latent = latents.get(at * dimensions..(at + 1) * dimensions);
            let (latent, key) = latent.zip(keys.get(at)).ok_or_else(|| Error::internal("latents ended early"))?;
            for (step, number) in row.iter_mut().zip(latent) {
                let number = number.real();
                *step = if number.is_finite() { number * STEPS } else { 0.0 };
            }
            match clip {
                Some(clip) => clip.round(&mut row),
                None => row.iter_mut().for_each(|step| *step = step.trunc()),
            }
            noise.add(&Stream::new(key, purpose)?, &mut row)?;
            all.extend(row.iter().map(|step| (step / STEPS) as f32));
        }
        row.zeroize();
        Ok(all)
    })?;
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::keystream;

    const KEYS: [[u8; 32]; 2] = [[4; 32], [5; 32]];

    #[test]
    fn steps_are_whole_and_within_the_bound() {
        let rows: [&[f64]; 5] = [
            &[6554.9, -6554.9, 0.9, -0.9, 3.0],
            &[1e300, -1e200, 7.0, 0.0, 1.0],
            &[5000.1, 4999.9, -3000.5, 1.0, 2.0],
            &[0.0; 5],
            &[f64::MAX; 5],
        ];
        for row in rows {
            for norm in [Norm::Value, Norm::L1, Norm::L2] {
                let mut rounded = row.to_vec();
                Clip::new(0.1, norm).unwrap().round(&mut rounded);
                assert!(rounded.iter().zip(row).all(|(step, from)| step.abs() <= from.abs() && step.fract() == 0.0));
                let whole = rounded.iter().map(|step| step.abs() as u128);
                match norm {
                    Norm::Value => assert!(whole.max().unwrap() <= 6553),
                    Norm::L1 => assert!(whole.sum::<u128>() <= 6553),
                    Norm::L2 => assert!(whole.map(|step| step * step).sum::<u128>() <= 6553 * 6553),
                }
            }
        }
        let mut within = [3.9, -4.9];
        Clip::new(0.1, Norm::L2).unwrap().round(&mut within);
        assert_eq!(within, [3.0, -4.0]);
    }

    #[test]
    fn gaussian_noise_of_a_coordinate_comes_from_its_two_words() {
        let n = 600;
        let latents = (0..2 * n).map(|i| (i % 13) as f32 / 100.0).collect::<Vec<_>>();
        let clip = Clip::new(0.05, Norm::Value).unwrap();
        let noise = Noise::gaussian(0.5).unwrap();
        let out = noisy(&latents, n, &KEYS, 4, Some(clip), noise, 1).unwrap();
        for (row, key) in KEYS.iter().enumerate() {
            for i in [0, 1, 255, 256, 257, 599] {
                let mut words = [0; 2];
                keystream(key, 4, 0, 2 * i as u64, &mut words).unwrap();
                let u = signed(words[0], words[1]);
                let kept = (f64::from(latents[row * n + i]) * STEPS).min(clip.limit).trunc();
                let z = normal_size(u.abs()).copysign(u);
                let expected = kept + z * (0.5 * STEPS * (1.0 + (-20f64).exp2()));
                assert_eq!(f64::from(out[row * n + i]) * STEPS, expected.round_ties_even());
            }
        }
    }

    #[test]
    fn laplace_noise_of_a_coordinate_comes_from_its_overflow() {
        let n = 300;
        let out = noisy(&vec![0.25; 2 * n], n, &KEYS, 4, None, Noise::laplace(1, 5000).unwrap(), 2).unwrap();
        for (row, key) in KEYS.iter().enumerate() {
            let stream = Stream::new(key, 4).unwrap();
            for i in 0..n {
                let step = discrete_laplace(1, 5000, &mut stream.overflow(i as u64)).unwrap();
                assert_eq!(f64::from(out[row * n + i]) * STEPS, (16_384 + step) as f64);
            }
        }
    }

    #[test]
    fn what_is_no_number_counts_as_zero() {
        let noise = Noise::laplace(1 << 48, 1).unwrap(); // no step at all
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, -1e308, 0.3];
        let out = |norm| noisy(&odd, 6, &KEYS[..1], 4, Some(Clip::new(1.0, norm).unwrap()), noise, 1).unwrap();
        assert_eq!(out(Norm::Value), [0.0, 0.0, 0.0, 1.0, -1.0, 19_660.0 / 65_536.0]);
        assert_eq!(out(Norm::L1), [0.0, 0.0, 0.0, 0.5, -0.5, 0.0]);
        let length = out(Norm::L2);
        assert_eq!(length[..3], [0.0; 3]);
        assert!((length[3] - 0.5f32.sqrt()).abs() < 2e-5 && length[4] == -length[3]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let noise = Noise::gaussian(1.0).unwrap();
        assert!(noisy(&[0.0; 3], 2, &KEYS, 4, None, noise, 1).is_err());
        assert!(noisy(&[0.0; 4], 2, &[KEYS[0]; 2], 4, None, noise, 1).is_err());
        assert!(noisy(&[0.0f64; 0], 0, &[], 4, None, noise, 1).is_err());
        assert!(noisy(&[0.0f64; 0], 5, &[], 4, None, noise, 1).unwrap().is_empty());
        for sigma in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308] {
            assert!(Noise::gaussian(sigma).is_err());
        }
        assert!(Noise::laplace(2, 4).is_err());
        for bound in [0.0, 1e-6, f64::NAN, 1e9] {
            assert!(Clip::new(bound, Norm::Value).is_err());
        }
    }
}
