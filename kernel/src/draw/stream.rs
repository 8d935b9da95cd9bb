//! Streams of a record: ChaCha20 read as 64-bit little-endian words (docs/spec/stream.md#streams).

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::ChaCha20;
use zeroize::Zeroizing;

use crate::draw::lanes::{self, OVERFLOW};
use crate::errors::{Error, Result};

/// Words of one ChaCha20 stream that are used: all but the last of 2^32 blocks of eight.
const STREAM_WORDS: u64 = (1 << 35) - 8;

/// Words of one block.
const BLOCK: usize = 8;

/// Words of the blocks that are made at once: to make fewer of several takes as long for each of them.
const AT_ONCE: usize = 4 * BLOCK;

/// The purposes that have a number (pass p >= 1 adds 256 p).
pub mod purpose {
    pub const TOKEN: u32 = 1;
    pub const LIST: u32 = 2;
    pub const LENGTH: u32 = 6;
}

/// One purpose of one record: a key and a number below 2^31.
#[derive(Clone, Copy)]
pub struct Stream<'k> {
    key: &'k [u8; 32],
    purpose: u32,
}

impl<'k> Stream<'k> {
    /// The stream of a purpose; refuses numbers that would meet the overflow streams.
    pub fn new(key: &'k [u8; 32], purpose: u32) -> Result<Self> {
        if purpose >= OVERFLOW {
            return Err(Error::policy(format!("a purpose is a number below 2^31; got {purpose}")));
        }
        Ok(Self { key, purpose })
    }

    /// Fills `out` with the words of the slots' stream from word `first` on.
    pub fn words(&self, first: u64, out: &mut [u64]) -> Result<()> {
        keystream(self.key, self.purpose, 0, first, out)
    }

    /// The slot of a position; as wide as `out`.
    pub fn slot(&self, position: u64, out: &mut [u64]) -> Result<()> {
        let first = position.checked_mul(out.len() as u64).ok_or_else(|| Error::input("a position is too large"))?;
        self.words(first, out)
    }

    /// The words that the draw at `position` needs beyond its slot, from the first on.
    pub fn overflow(&self, position: u64) -> Overflow<'k> {
        Overflow { key: self.key, purpose: self.purpose | OVERFLOW, position, next: 0, ahead: &[] }
    }

    /// The first overflow words of some positions, as many of each as `lanes::AHEAD`, into `out`; with a `part` above 0
    /// as many further ones.
    pub fn ahead(&self, part: u32, positions: impl Iterator<Item = u64>, out: &mut [u64]) {
        lanes::overflow_words(self.key, self.purpose, part, positions, out);
    }
}

/// The overflow words of one position, in sequence; both levels of a draw share it.
pub struct Overflow<'k> {
    key: &'k [u8; 32],
    purpose: u32,
    position: u64,
    next: u64,
    /// Words from the first on that are made already.
    ahead: &'k [u64],
}

impl<'k> Overflow<'k> {
    /// With the position's first words at hand, as `Stream::ahead` makes them.
    #[must_use]
    pub fn with(self, ahead: &'k [u64]) -> Self {
        Self { ahead, ..self }
    }

    pub fn next_word(&mut self) -> Result<u64> {
        let mut word = [0u64; 1];
        keystream(self.key, self.purpose, self.position, self.next, &mut word)?;
        self.next += 1;
        let [word] = word;
        Ok(word)
    }

    /// The next words, as many as `out` holds.
    pub fn fill(&mut self, out: &mut [u64]) -> Result<()> {
        let made = usize::try_from(self.next).ok().and_then(|next| self.ahead.get(next..next + out.len()));
        match made {
            Some(made) => out.copy_from_slice(made),
            None => keystream(self.key, self.purpose, self.position, self.next, out)?,
        }
        self.next += out.len() as u64;
        Ok(())
    }

    /// Leaves the last words that were handed out to the next reader.
    pub fn give_back(&mut self, unused: u64) {
        self.next = self.next.saturating_sub(unused);
    }
}

/// Words `first ..` of ChaCha20 (RFC 8439) under the nonce `u32(purpose) || u64(serial)`.
pub fn keystream(key: &[u8; 32], purpose: u32, serial: u64, first: u64, out: &mut [u64]) -> Result<()> {
    let end = first.checked_add(out.len() as u64);
    if end.is_none_or(|end| end > STREAM_WORDS) {
        return Err(Error::input("a record needs more draws than one stream holds (2^35 words)")
            .hint("lower the mechanism's n_max"));
    }
    let mut nonce = [0u8; 12];
    let (head, tail) = nonce.split_at_mut(4);
    head.copy_from_slice(&purpose.to_le_bytes());
    tail.copy_from_slice(&serial.to_le_bytes());
    let mut cipher = ChaCha20::new(key.into(), (&nonce).into());
    cipher.try_seek(first * 8).map_err(|_| Error::internal("the stream could not be positioned"))?;
    let mut apply = |words: &mut [u64]| {
        words.fill(0);
        cipher
            .try_apply_keystream(bytemuck::cast_slice_mut(words))
            .map_err(|_| Error::internal("the stream ended early"))
    };
    let (whole, rest) = out.split_at_mut(out.len() / AT_ONCE * AT_ONCE);
    apply(whole)?;
    if rest.len() > BLOCK && first + (whole.len() + AT_ONCE) as u64 <= STREAM_WORDS {
        let mut words = Zeroizing::new([0u64; AT_ONCE]);
        apply(words.as_mut_slice())?;
        rest.iter_mut().zip(words.iter()).for_each(|(place, word)| *place = *word);
    } else {
        apply(rest)?;
    }
    if cfg!(target_endian = "big") {
        out.iter_mut().for_each(|word| *word = word.swap_bytes());
    }
    Ok(())
}

/// A buffer for slot words that forgets them.
pub type Words = Zeroizing<Vec<u64>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads_the_same_from_anywhere() {
        let key = [3; 32];
        let mut whole = [0u64; 100];
        keystream(&key, 1, 0, 0, &mut whole).unwrap();
        for first in [0usize, 1, 7, 8, 9, 63] {
            let mut part = [0u64; 20];
            keystream(&key, 1, 0, first as u64, &mut part).unwrap();
            assert_eq!(part, whole[first..first + 20]);
        }
    }

    #[test]
    fn a_stream_ends_and_says_so() {
        let mut word = [0u64; 1];
        assert!(keystream(&[0; 32], 1, 0, STREAM_WORDS - 1, &mut word).is_ok());
        assert!(keystream(&[0; 32], 1, 0, STREAM_WORDS, &mut word).is_err());
        assert!(keystream(&[0; 32], 1, 0, u64::MAX, &mut word).is_err());
        assert!(Stream::new(&[0; 32], OVERFLOW).is_err());
    }
}
