//! Instructions that not every processor of a kind has.

/// Whether the processor has AVX2 and the bit instructions that came with it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}
