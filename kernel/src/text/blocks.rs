//! Words of ASCII letters, 63 bytes of a text at a time: one bit per byte says what it is, and runs of bits are words.

use std::ops::{ControlFlow, Range};

use crate::text::packed::Packed;

/// Bytes that are read for a block: its own, the next one, and as many as the longest packed word.
const READ: usize = BYTES + 1 + Packed::LONGEST;
/// Bytes of a block.
const BYTES: usize = 63;

/// What the bytes of a block are, the first one in the lowest bit.
struct Masks {
    letters: u64,
    /// Colons, periods, and apostrophes, which join letters.
    joiners: u64,
    /// Digits, underscores, and bytes of characters that are not ASCII.
    others: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn masks(bytes: &[u8; READ]) -> Masks {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8,
    };
    let mut masks = Masks { letters: 0, joiners: 0, others: 0 };
    for (part, shift) in bytes.as_chunks::<16>().0.iter().zip([0, 16, 32, 48]) {
        // SAFETY: every x86-64 processor has the instructions, and 16 bytes are read.
        let [letters, joiners, others] = unsafe {
            let bytes = _mm_loadu_si128(part.as_ptr().cast());
            let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
            let up_to = |bytes: __m128i, first: u8, more: i8| {
                let from_first = _mm_add_epi8(bytes, _mm_set1_epi8(first.wrapping_neg() as i8));
                _mm_cmpeq_epi8(_mm_min_epu8(from_first, _mm_set1_epi8(more)), from_first)
            };
            let letters = up_to(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), b'a', 25);
            let joiners = _mm_or_si128(_mm_or_si128(is(b'.'), is(b'\'')), is(b':'));
            // Bytes of other characters have their highest bit set already.
            let others = _mm_or_si128(_mm_or_si128(up_to(bytes, b'0', 9), is(b'_')), bytes);
            [letters, joiners, others].map(|mask| _mm_movemask_epi8(mask) as u64)
        };
        masks.letters |= letters << shift;
        masks.joiners |= joiners << shift;
        masks.others |= others << shift;
    }
    masks
}

/// Calls `found` with words of ASCII letters from the boundary `at` on, up to the first segment that needs another
/// look, and returns where that starts; none at the end of the text or if `found` breaks.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn words(
    bytes: &[u8],
    mut at: usize,
    found: &mut impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>,
) -> Option<usize> {
    let mut end_of_text = [b' '; READ];
    while at < bytes.len() {
        let block = bytes.get(at..).and_then(|rest| rest.first_chunk()).unwrap_or_else(|| {
            let rest = bytes.get(at..).unwrap_or_default();
            end_of_text.fill(b' ');
            end_of_text.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            &end_of_text
        });
        let Masks { letters, joiners, others } = masks(block);
        let joined = joiners & (letters << 1) & ((letters | others) >> 1);
        let plain = ((others | joined).trailing_zeros() as usize).min(BYTES);
        let (mut starts, inside) = (letters & !(letters << 1), (1 << plain) - 1);
        let mut ends = !letters & (letters << 1) & inside;
        while ends != 0 {
            let (start, end) = (starts.trailing_zeros() as usize, ends.trailing_zeros() as usize);
            let packed = Packed::cut(block, start, end - start);
            if found(at + start..at + end, packed).is_break() {
                return None;
            }
            starts &= starts - 1;
            ends &= ends - 1;
        }
        let cut = starts & inside;
        let next = at + if cut == 0 { plain } else { cut.trailing_zeros() as usize };
        if plain < BYTES || next == at {
            return Some(next).filter(|&next| next < bytes.len());
        }
        at = next;
    }
    None
}

/// Elsewhere every segment needs another look.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn words(
    _bytes: &[u8],
    at: usize,
    _found: &mut impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>,
) -> Option<usize> {
    Some(at)
}
