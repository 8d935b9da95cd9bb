//! Numbers for tests, the same in every run. No draw comes from here.

/// Numbers of 64 bits by xorshift (Marsaglia 2003); the seed is not 0.
pub fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
