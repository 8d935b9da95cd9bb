//! HMAC-SHA256 (RFC 2104) of many messages under one key.

use sha2::block_api::compress256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::errors::{Error, Result};

/// A key, or a tag that serves as one.
pub type Key = Zeroizing<[u8; 32]>;

/// Bytes of a block of SHA-256.
pub const BLOCK: usize = 64;
/// Bytes of a block in front of the length of the message.
pub const BEFORE_LENGTH: usize = BLOCK - 8;
/// The state from which SHA-256 starts (FIPS 180-4, 5.3.3).
pub const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// A keyed HMAC-SHA256: the states of both hashes behind the key's block, from which every message starts.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Prf {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl Prf {
    /// Refuses a key of more than 64 bytes, which HMAC would hash first.
    pub fn new(key: &[u8]) -> Result<Self> {
        let keyed = |pad: u8| {
            let mut block = Zeroizing::new([pad; BLOCK]);
            block.iter_mut().zip(key).for_each(|(place, byte)| *place ^= byte);
            let mut state = START;
            compress256(&mut state, &[*block]);
            state
        };
        if key.len() > BLOCK {
            return Err(Error::internal("HMAC refused a key"));
        }
        Ok(Self { inner: keyed(0x36), outer: keyed(0x5c) })
    }

    /// `H(key, parts joined)`.
    #[inline]
    pub fn tag(&self, parts: &[&[u8]]) -> Key {
        let mut hash = Hash::from(self.inner);
        parts.iter().for_each(|part| hash.update(part));
        hash.finish();
        hash.hash_again(self.outer);
        let mut out = Key::default();
        hash.write(out.as_mut_slice());
        out
    }
}

/// `SHA-256(parts joined)`.
#[inline]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Hash { state: START, block: [0; BLOCK / 8], filled: 0, len: 0 };
    parts.iter().for_each(|part| hash.update(part));
    hash.finish();
    let mut out = [0; 32];
    hash.write(&mut out);
    out
}

/// A hash under way, at its start or behind the block of a key.
#[derive(Zeroize, ZeroizeOnDrop)]
struct Hash {
    state: [u32; 8],
    /// What does not fill a block yet, as bytes; wider numbers are erased faster.
    block: [u64; BLOCK / 8],
    filled: usize,
    /// Bytes of the message so far.
    len: u64,
}

impl Hash {
    fn from(state: [u32; 8]) -> Self {
        Self { state, block: [0; BLOCK / 8], filled: 0, len: BLOCK as u64 }
    }

    fn bytes(&mut self) -> &mut [u8; BLOCK] {
        bytemuck::cast_mut(&mut self.block)
    }

    fn compress(&mut self) {
        compress256(&mut self.state, &[bytemuck::cast(self.block)]);
    }

    #[inline(always)]
    fn update(&mut self, mut part: &[u8]) {
        self.len += part.len() as u64;
        let filled = self.filled;
        if filled > 0 {
            let (head, rest) = part.split_at(part.len().min(BLOCK - filled));
            self.bytes().get_mut(filled..filled + head.len()).unwrap_or_default().copy_from_slice(head);
            (self.filled, part) = (filled + head.len(), rest);
            if self.filled < BLOCK {
                return;
            }
            self.compress();
        }
        let (blocks, rest) = part.as_chunks::<BLOCK>();
        if !blocks.is_empty() {
            compress256(&mut self.state, blocks);
        }
        self.bytes().get_mut(..rest.len()).unwrap_or_default().copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// Ends the message; the state is then its hash.
    #[inline(always)]
    fn finish(&mut self) {
        let (filled, bits) = (self.filled, 8 * self.len);
        let rest = self.bytes().get_mut(filled..).unwrap_or_default();
        rest.fill(0);
        rest.first_mut().into_iter().for_each(|end| *end = 0x80);
        if filled >= BEFORE_LENGTH {
            self.compress();
            self.block = [0; BLOCK / 8];
        }
        if let Some(length) = self.block.last_mut() {
            *length = bits.to_be();
        }
        self.compress();
    }

    /// Hashes the hash of this message behind `state`: one block, as all of these messages have one length.
    #[inline(always)]
    fn hash_again(&mut self, state: [u32; 8]) {
        let mut block = [0; BLOCK / 8];
        self.write(bytemuck::cast_slice_mut(block.as_mut_slice()));
        block[4] = u64::from_ne_bytes([0x80, 0, 0, 0, 0, 0, 0, 0]);
        block[7] = (8 * (BLOCK as u64 + 32)).to_be();
        (self.state, self.block) = (state, block);
        self.compress();
        block.zeroize();
    }

    /// Writes the state as bytes.
    #[inline(always)]
    fn write(&self, out: &mut [u8]) {
        for (place, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(self.state) {
            *place = word.to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;

    use super::*;
    use crate::pseudo_random::numbers;

    /// Messages of every length around three blocks, in one part and in several.
    #[test]
    fn tags_are_those_of_another_implementation() {
        let mut next = numbers(11);
        let bytes = (0..300).map(|_| next() as u8).collect::<Vec<_>>();
        for (len, key) in (0..200).flat_map(|len| [0, 1, 32, 63, 64].map(|key| (len, key))) {
            let (key, message) = (&bytes[..key], &bytes[bytes.len() - len..]);
            let prf = Prf::new(key).unwrap();
            let expected = Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(message).finalize().into_bytes();
            assert_eq!(prf.tag(&[message]).as_slice(), expected.as_slice());
            let (head, tail) = message.split_at(next() as usize % (len + 1));
            let (middle, tail) = tail.split_at(next() as usize % (tail.len() + 1));
            assert_eq!(prf.tag(&[head, middle, &[], tail]).as_slice(), expected.as_slice());
        }
        assert!(Prf::new(&bytes[..65]).is_err());
    }

    /// RFC 4231, test case 1.
    #[test]
    fn a_tag_is_the_known_one() {
        let tag = Prf::new(&[0x0b; 20]).unwrap().tag(&[b"Hi ", b"There"]);
        assert_eq!(crate::keys::secrets::hex(&tag[..8]), "b0344c61d8db3853");
    }
}
