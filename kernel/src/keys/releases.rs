//! What follows from a secret for one release: record keys, and the ledger's names of records (docs/spec/stream.md#keys).

use std::fmt::Write;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::errors::Result;
use crate::keys::canon;
use crate::keys::prf::Prf;
use crate::keys::secrets::{fingerprint, push_hex, Key, Secret};

/// Characters that end the name of a record in the ledger, at most: `",`, a number of 64 bits and `]`.
const ENDING: usize = 23;

/// The key R of one release of one column, and its fingerprint key.
pub struct ReleaseKey {
    fingerprints: Prf,
    records: Prf,
    /// The name of a record in the ledger, up to its id: `["dataset","release","column",`.
    before_id: String,
    /// And from there to the fingerprint: `,"cfg","`.
    after_id: String,
}

impl ReleaseKey {
    /// `R = H(K, "dptext/rel/v1\0" || canon({"v":1,"ds":…,"col":…,"rel":…,"mech":cfg}))`.
    pub fn new(secret: &Secret, dataset: &str, column: &str, release: &str, cfg: &str) -> Result<Self> {
        let mut context = String::new();
        for (opening, value) in
            [("{\"col\":", column), (",\"ds\":", dataset), (",\"mech\":", cfg), (",\"rel\":", release)]
        {
            context.push_str(opening);
            canon::string(&mut context, value);
        }
        context.push_str(",\"v\":1}");
        let key = secret.prf()?.tag(&[b"dptext/rel/v1\0", context.as_bytes()]);
        let mut before_id = String::from("[");
        for name in [dataset, release, column] {
            canon::string(&mut before_id, name);
            before_id.push(',');
        }
        let mut after_id = String::from(",");
        canon::string(&mut after_id, cfg);
        after_id.push_str(",\"");
        Ok(Self { fingerprints: secret.fingerprints()?, records: Prf::new(key.as_slice())?, before_id, after_id })
    }

    /// `r = H(R, "dptext/rec/v1\0" || u64(len(rid)) || rid || fp || u64(nonce))`.
    #[inline]
    pub fn record(&self, id: &str, text: Option<&[u8]>, nonce: u64) -> Key {
        let print = fingerprint(&self.fingerprints, text);
        self.records.tag(&[
            b"dptext/rec/v1\0",
            &(id.len() as u64).to_le_bytes(),
            id.as_bytes(),
            print.as_slice(),
            &nonce.to_le_bytes(),
        ])
    }

    /// `H(R, "dptext/row/v1\0" || u64(len(rid)) || rid || fp || label)`, label `0x01 || utf8`, or `0x00` for null.
    pub fn row(&self, id: &str, text: Option<&[u8]>, label: Option<&[u8]>) -> Key {
        let print = fingerprint(&self.fingerprints, text);
        self.records.tag(&[
            b"dptext/row/v1\0",
            &(id.len() as u64).to_le_bytes(),
            id.as_bytes(),
            print.as_slice(),
            &[u8::from(label.is_some())],
            label.unwrap_or_default(),
        ])
    }

    /// `H(R, "dptext/order/v1\0" || rid)`: by it the records of a person are ordered that are counted.
    pub fn order(&self, id: &str) -> Key {
        self.records.tag(&[b"dptext/order/v1\0", id.as_bytes()])
    }

    /// `H(R, "dptext/sum/v1\0" || digest of the rows || the sums as i64)`: the noise key of a statistic.
    pub fn noise(&self, digest: &[u8; 32], sums: &[i64]) -> Key {
        let sums = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect::<Vec<_>>();
        let sums = Zeroizing::new(sums);
        self.records.tag(&[b"dptext/sum/v1\0", digest, &sums])
    }

    /// `SHA-256(canon([dataset, release, column, id, cfg, hex(fp), nonce]))`: the ledger's key of one release of a text.
    pub fn idempotency(&self, id: &str, text: Option<&[u8]>, nonce: u64) -> [u8; 32] {
        let print = fingerprint(&self.fingerprints, text);
        let room = self.before_id.len() + canon::longest(id) + self.after_id.len() + 2 * print.len() + ENDING;
        let mut line = Zeroizing::new(String::with_capacity(room)); // it never moves, so no copy of it stays behind
        line.push_str(&self.before_id);
        canon::string(&mut line, id);
        line.push_str(&self.after_id);
        push_hex(&mut line, print.as_slice());
        // Writing to a String cannot fail.
        let _ = write!(line, "\",{nonce}]");
        Sha256::digest(line.as_bytes()).into()
    }
}

impl std::fmt::Debug for ReleaseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReleaseKey(...)")
    }
}

/// A ledger's name of an id: `H(L, "dptext/id/v1\0" || kind || u64(len) || id)`.
pub fn ledger_id(ledger: &Prf, kind: &str, id: &str) -> [u8; 32] {
    *ledger.tag(&[b"dptext/id/v1\0", kind.as_bytes(), &(id.len() as u64).to_le_bytes(), id.as_bytes()])
}
