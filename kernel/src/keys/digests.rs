//! SHA-256 digests of released texts and Merkle roots of sealed segments (RFC 6962: leaf prefix 0, node prefix 1).

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

use crate::keys::prf::{sha256, BEFORE_LENGTH, BLOCK, START};

pub type Hash = [u8; 32];

/// `SHA-256(0x01 || utf8)`, and `SHA-256(0x00)` for null.
pub fn text(text: Option<&str>) -> Hash {
    text.map_or_else(|| sha256(&[&[0]]), |text| sha256(&[&[1], text.as_bytes()]))
}

/// A message of fixed length behind one byte, padded once for all hashes of its kind.
#[derive(Clone)]
pub struct Padded {
    blocks: Vec<[u8; BLOCK]>,
    len: usize,
}

impl Padded {
    fn new(first: u8, len: usize) -> Self {
        let mut blocks = vec![[0; BLOCK]; (1 + len) / BLOCK + 1 + usize::from((1 + len) % BLOCK >= BEFORE_LENGTH)];
        let bytes = blocks.as_flattened_mut();
        let end = bytes.len() - 8;
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        if let Some(byte) = bytes.get_mut(1 + len) {
            *byte = 0x80;
        }
        bytes.get_mut(end..).unwrap_or_default().copy_from_slice(&(8 * (1 + len as u64)).to_be_bytes());
        Self { blocks, len }
    }

    /// A leaf `SHA-256(0x00 || item)` over items of this number of bytes.
    pub fn leaf(len: usize) -> Self {
        Self::new(0, len)
    }

    /// The bytes of the item.
    #[inline(always)]
    pub fn item(&mut self) -> &mut [u8] {
        self.blocks.as_flattened_mut().get_mut(1..=self.len).unwrap_or_default()
    }

    #[inline(always)]
    pub fn hash(&self) -> Hash {
        let (mut state, mut hash) = (START, Hash::default());
        compress256(&mut state, &self.blocks);
        for (place, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *place = word.to_be_bytes();
        }
        hash
    }
}

/// The root over leaves in order; a node without a partner rises as it is; no leaves give `SHA-256("")`.
pub fn root(mut level: Vec<Hash>) -> Hash {
    let mut node = Padded::new(1, 2 * size_of::<Hash>());
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [odd] => *odd,
                _ => {
                    node.item().copy_from_slice(pair.as_flattened());
                    node.hash()
                }
            })
            .collect();
    }
    level.pop().unwrap_or_else(|| Sha256::digest([]).into())
}

/// Adds a hash to a sum modulo 2^256, both as little-endian integers.
pub fn add(sum: &mut Hash, hash: &Hash) {
    let mut carry = false;
    for (into, from) in sum.as_chunks_mut::<8>().0.iter_mut().zip(hash.as_chunks::<8>().0) {
        let (one, over) = u64::from_le_bytes(*into).overflowing_add(u64::from_le_bytes(*from));
        let (both, more) = one.overflowing_add(u64::from(carry));
        carry = over || more;
        *into = both.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_carry_and_wrap() {
        let mut sum = [0xff; 32];
        let one = std::array::from_fn(|i| u8::from(i == 0));
        add(&mut sum, &one);
        assert_eq!(sum, [0; 32]);
        sum[7] = 0x80;
        let same = sum;
        add(&mut sum, &same);
        assert_eq!(sum, std::array::from_fn(|i| u8::from(i == 8)));
    }

    #[test]
    fn padded_messages_hash_as_others_do() {
        for len in 0..200 {
            let message = (0..len).map(|byte| byte as u8).collect::<Vec<_>>();
            let mut leaf = Padded::leaf(len);
            leaf.item().copy_from_slice(&message);
            assert_eq!(leaf.hash(), <Hash>::from(Sha256::digest([&[0], message.as_slice()].concat())), "{len}");
        }
    }

    #[test]
    fn texts_of_every_length_hash_as_others_do() {
        assert_eq!(text(None), <Hash>::from(Sha256::digest([0])));
        for len in 0..300 {
            let words = "ab \u{e9}".chars().cycle().take(len).collect::<String>();
            assert_eq!(text(Some(&words)), <Hash>::from(Sha256::digest(["\u{1}", &words].concat())), "{len}");
        }
    }

    #[test]
    fn an_odd_node_rises() {
        let leaves = [b"a", b"b", b"c"].map(|item| <Hash>::from(Sha256::digest(item))).to_vec();
        let node = |left: &Hash, right: &Hash| <Hash>::from(Sha256::digest([&[1], &left[..], &right[..]].concat()));
        assert_eq!(root(leaves.clone()), node(&node(&leaves[0], &leaves[1]), &leaves[2]));
        assert_eq!(root(leaves[..1].to_vec()), leaves[0]);
        assert_eq!(root(Vec::new()), <Hash>::from(Sha256::digest([])));
    }
}
