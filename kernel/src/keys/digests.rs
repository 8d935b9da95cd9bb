//! SHA-256 digests of released texts and Merkle roots of sealed segments (RFC 6962: leaf prefix 0, node prefix 1).

use sha2::{Digest, Sha256};

pub type Hash = [u8; 32];

/// `SHA-256(0x01 || utf8)`, and `SHA-256(0x00)` for null.
pub fn text(text: Option<&str>) -> Hash {
    let mut hash = Sha256::new();
    match text {
        Some(text) => {
            hash.update([1]);
            hash.update(text.as_bytes());
        }
        None => hash.update([0]),
    }
    hash.finalize().into()
}

/// The leaf of an item: `SHA-256(0x00 || item)`.
pub fn leaf(item: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(item).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root over leaves in order; a node without a partner rises as it is; no leaves give `SHA-256("")`.
pub fn root(mut level: Vec<Hash>) -> Hash {
    while level.len() > 1 {
        level = level
            .chunks(2)
            .filter_map(|pair| match pair {
                [left, right] => Some(node(left, right)),
                [odd] => Some(*odd),
                _ => None,
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
    fn an_odd_node_rises() {
        let leaves = [b"a", b"b", b"c"].map(|item| leaf(item)).to_vec();
        assert_eq!(root(leaves.clone()), node(&node(&leaves[0], &leaves[1]), &leaves[2]));
        assert_eq!(root(leaves[..1].to_vec()), leaves[0]);
        assert_eq!(root(Vec::new()), <Hash>::from(Sha256::digest([])));
    }
}
