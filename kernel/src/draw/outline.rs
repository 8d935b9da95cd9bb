//! Where in a row of running sums a draw falls, from one line of the processor's cache.

/// What finds nearly every draw without a look at the running sums: their last one, and the highest 16 bits of up to
/// 20 of them at equal distances. With its row's place, it fills one line of the processor's cache.
#[derive(Clone, Copy)]
pub struct Outline {
    pub total: u64,
    /// Less 2^15: vector instructions compare signed numbers.
    highest: [i16; Self::LEN],
}

impl Outline {
    const LEN: usize = 20;

    /// The outline of running sums; those that do not fill it leave places that no draw reaches.
    pub fn new(running: &[u64]) -> Self {
        let mut outline = Self { total: running.last().copied().unwrap_or(0), highest: [i16::MAX; Self::LEN] };
        let (shift, last) = (outline.shift(), running.len().saturating_sub(1));
        let ends = (1..).map(|part| (part * Self::stride(running.len())).saturating_sub(1));
        for (place, end) in outline.highest.iter_mut().zip(ends.take_while(|&end| end < last).chain([last])) {
            *place = running.get(end).map_or(i16::MAX, |sum| highest(*sum, shift));
        }
        outline
    }

    /// How far sums up to the total are shifted to fit 16 bits.
    #[inline(always)]
    const fn shift(&self) -> u32 {
        48u32.saturating_sub(self.total.leading_zeros())
    }

    /// How many running sums are behind each of the outline's.
    #[inline(always)]
    const fn stride(len: usize) -> usize {
        if len <= Self::LEN {
            1
        } else {
            len.div_ceil(Self::LEN)
        }
    }

    /// Where the first of `len` running sums above `chosen` must be. Where the highest bits are equal that is more
    /// than one stride.
    #[inline(always)]
    pub fn range(&self, len: usize, chosen: u64) -> std::ops::Range<usize> {
        let wanted = highest(chosen, self.shift());
        let below = usize::from(self.highest.iter().map(|&sum| u16::from(sum < wanted)).sum::<u16>());
        let up_to = if self.highest.get(below) == Some(&wanted) { self.up_to(wanted) } else { below };
        let stride = Self::stride(len);
        below * stride..len.min((up_to + 1) * stride)
    }

    #[cold]
    fn up_to(&self, wanted: i16) -> usize {
        self.highest.iter().filter(|&&sum| sum <= wanted).count()
    }
}

#[inline(always)]
const fn highest(sum: u64, shift: u32) -> i16 {
    ((sum >> shift) as u16 ^ 0x8000).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::weights::{running_sums, Weights};

    #[test]
    fn an_outline_changes_nothing() {
        let shapes: [&dyn Fn(u64) -> u64; 6] =
            [&|i| i % 3, &|i| 1 << (i % 50), &|_| 1 << 46, &|i| 1 + i * i * i, &|i| u64::from(i == 17), &|_| 1];
        let lens = [18u64, 19, 20, 21, 39, 40, 41, 64, 399, 400, 401, 4096];
        for (shape, len) in shapes.iter().flat_map(|shape| lens.map(|len| (shape, len))) {
            let sums = running_sums(&(0..len).map(shape).collect::<Vec<_>>()).unwrap();
            let total = *sums.last().unwrap();
            let outline = Outline::new(&sums);
            assert!(total >> outline.shift() <= u64::from(u16::MAX));
            let near = sums.iter().flat_map(|&sum| [sum.wrapping_sub(1), sum, sum + 1]).filter(|&sum| sum < total);
            for chosen in near.chain((0..999u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % total)) {
                let expected = sums.partition_point(|&sum| sum <= chosen);
                assert_eq!(Weights::outlined(&sums, &outline).first_above(chosen), expected);
                assert_eq!(Weights::from_running(&sums).first_above(chosen), expected);
            }
        }
        for len in 1..18 {
            let sums = running_sums(&vec![3; len]).unwrap();
            let outline = Outline::new(&sums);
            let drawn = |chosen| Weights::outlined(&sums, &outline).first_above(chosen);
            assert!((0..3 * len as u64).all(|chosen| drawn(chosen) as u64 == chosen / 3));
        }
        let largest = [u64::MAX - 1, u64::MAX];
        let outlined = Outline::new(&largest);
        assert_eq!(Weights::outlined(&largest, &outlined).first_above(u64::MAX - 2), 0);
        assert_eq!(Weights::outlined(&largest, &outlined).first_above(u64::MAX - 1), 1);
    }
}
