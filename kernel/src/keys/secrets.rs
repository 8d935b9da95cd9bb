//! Secrets by reference, and fingerprints of texts (docs/spec/stream.md#keys). Key bytes are zeroised and never printed.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::errors::{reason, Error, Result};
pub use crate::keys::prf::Key;
use crate::keys::prf::Prf;

/// The 32 bytes K of a scope, or L of a ledger.
pub struct Secret(Key);

/// Returns the key behind a reference that is neither a variable nor a file.
pub type Provider = fn(&str) -> Result<Secret>;

/// What to do without the key of a release (`dptext_etl.keys.RESTORE`).
const RESTORE: &str = "restore the key from your backup; a new key needs a new release name";

static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// Names whom to ask for references of other schemes; the first call counts.
pub fn ask(provider: Provider) {
    let _ = PROVIDER.set(provider);
}

static RESOLVED: LazyLock<Mutex<HashMap<String, Arc<Secret>>>> = LazyLock::new(Mutex::default);

impl Secret {
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut key = Key::default();
        if bytes.len() != key.len() {
            return Err(Error::key(format!("a secret has 32 bytes; got {}", bytes.len())));
        }
        key.copy_from_slice(bytes);
        Ok(Self(key))
    }

    /// A new secret from the operating system's generator.
    pub fn random() -> Result<Self> {
        let mut key = Key::default();
        getrandom::fill(key.as_mut_slice())
            .map_err(|_| Error::key("the operating system gave no random bytes for a new key"))?;
        Ok(Self(key))
    }

    /// The secret behind a reference, read once per process unless `reread`. No lock is held while it is read: a
    /// provider may take long, or need a key itself.
    pub fn resolve(reference: &str, reread: bool) -> Result<Arc<Self>> {
        let resolved = || RESOLVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !reread {
            if let Some(secret) = resolved().get(reference) {
                return Ok(secret.clone());
            }
        }
        let secret = Arc::new(Self::read(reference)?);
        let mut resolved = resolved();
        if reread {
            resolved.insert(reference.to_owned(), secret.clone());
            return Ok(secret);
        }
        Ok(resolved.entry(reference.to_owned()).or_insert(secret).clone())
    }

    fn read(reference: &str) -> Result<Self> {
        match reference.split_once(':') {
            Some((_, key)) if key.len() == 64 && key.bytes().all(|c| hex_digit(c).is_some()) => Err(Error::key(
                "a key reference names a variable or a file; got 64 hex digits, which may be a key itself",
            )
            .hint("treat that key as known to everyone who saw it; `dptext key new PATH` writes another one")),
            Some(("env", name)) => Self::from_environment(name),
            Some(("file", path)) => Self::from_file(path),
            Some((scheme, name)) if !scheme.is_empty() && !name.is_empty() => match PROVIDER.get() {
                Some(provider) => provider(reference),
                None => Err(no_reference()),
            },
            _ => Err(no_reference()),
        }
    }

    fn from_environment(name: &str) -> Result<Self> {
        if !name.to_ascii_uppercase().contains("SECRET") {
            return Err(Error::key("the environment variable of a key needs SECRET in its name")
                .hint("engines redact variables by that word; name it like DPTEXT_SECRET"));
        }
        let value = match std::env::var(name) {
            Ok(value) => Zeroizing::new(value),
            Err(std::env::VarError::NotPresent) => {
                return Err(Error::key(format!("the environment variable {name} is not set"))
                    .hint(format!("{RESTORE}; `dptext key new PATH` makes the first one")))
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(malformed(&format!("the environment variable {name}")))
            }
        };
        Self::from_hex(&value, &format!("the environment variable {name}"))
    }

    fn from_file(path: &str) -> Result<Self> {
        let hint = format!("{RESTORE}; `dptext key new {path}` makes the first one");
        let failed = |action: &str, error: &std::io::Error| {
            Error::key(format!("the key file {path} cannot be {action} ({})", reason(error))).hint(hint.clone())
        };
        // Opened first and judged by its handle, so that nothing can be exchanged in between; a pipe does not block.
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC).bits()).unwrap_or(0))
            .open(path)
            .map_err(|error| failed("opened", &error))?;
        let facts = file.metadata().map_err(|error| failed("examined", &error))?;
        if !facts.is_file() {
            return Err(Error::key(format!("the key file {path} is not a regular file")).hint(hint));
        }
        require_private(path, facts.uid(), facts.gid(), facts.mode())?;
        let mut text = Zeroizing::new(String::with_capacity(128));
        Read::by_ref(&mut file).take(128).read_to_string(&mut text).map_err(|error| failed("read", &error))?;
        Self::from_hex(&text, &format!("the key file {path}"))
    }

    fn from_hex(text: &str, place: &str) -> Result<Self> {
        let digits = text.strip_suffix('\n').unwrap_or(text);
        let digits = digits.strip_suffix('\r').unwrap_or(digits);
        let mut key = Key::default();
        if digits.len() != 64 {
            return Err(malformed(place));
        }
        for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let &[high, low] = pair else { return Err(malformed(place)) };
            *byte = hex_digit(high).zip(hex_digit(low)).map(|(h, l)| h << 4 | l).ok_or_else(|| malformed(place))?;
        }
        Ok(Self(key))
    }

    /// Writes the secret as 64 hex digits to a new file that only its owner may read.
    pub fn write(&self, path: &str) -> Result<()> {
        let failed = |error: std::io::Error| {
            let hint = if error.kind() == std::io::ErrorKind::AlreadyExists {
                "a key is never overwritten: choose another path"
            } else {
                "the folder has to exist and be writable"
            };
            Error::key(format!("the key file {path} cannot be written ({})", reason(&error))).hint(hint)
        };
        let mut text = Zeroizing::new(hex(self.0.as_slice()));
        text.push('\n');
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Whether the key is printed in the documents (00 01 … 1f, 20 21 … 3f, or one byte repeated).
    pub fn published(&self) -> bool {
        let step = |start: u8| self.0.iter().zip(start..).all(|(&byte, expected)| byte == expected);
        step(0x00) || step(0x20) || self.0.windows(2).all(|pair| pair.first() == pair.last())
    }

    pub fn prf(&self) -> Result<Prf> {
        Prf::new(self.0.as_slice())
    }

    /// A key for another use: `H(K, "dptext/<label>/v1\0" || message)`, label `canary` or `seal`.
    pub fn derive(&self, label: &str, message: &[u8]) -> Result<Key> {
        if !matches!(label, "canary" | "seal") {
            return Err(Error::policy("keys are derived for \"canary\" and \"seal\"; got another label"));
        }
        Ok(self.prf()?.tag(&[b"dptext/", label.as_bytes(), b"/v1\0", message]))
    }

    /// `K_fp`, keyed.
    pub fn fingerprints(&self) -> Result<Prf> {
        Prf::new(self.prf()?.tag(&[b"dptext/fp/v1\0"]).as_slice())
    }

    pub fn fingerprint(&self, text: Option<&[u8]>) -> Result<Key> {
        Ok(fingerprint(&self.fingerprints()?, text))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(...)")
    }
}

fn no_reference() -> Error {
    Error::key("a key reference is \"env:NAME\" or \"file:PATH\"; got something else")
        .hint("never pass the key itself; `dptext key new PATH` writes a key file, then use \"file:PATH\"")
}

/// Refuses a key file that others than this process's user can read.
///
/// It belongs to the user and is open to no one else; or to root and to a group of the process, and then that group may
/// read it and no more: so Kubernetes mounts a secret for a pod with `fsGroup`.
fn require_private(path: &str, owner: u32, group: u32, mode: u32) -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let mounted = owner == 0 && user != 0 && mode & 0o040 != 0 && in_groups(group);
    if owner != user && !mounted {
        return Err(Error::key(format!("the key file {path} belongs to user {owner}, not to user {user}")).hint(
            "copy it to a file that you own, with mode 0600; a mounted secret of root needs mode 0440 and your group",
        ));
    }
    let open = mode & if mounted { 0o037 } else { 0o077 };
    if open != 0 {
        let hint = if mounted { "mount it with defaultMode: 0440".to_owned() } else { format!("chmod 600 {path}") };
        return Err(
            Error::key(format!("the key file {path} is open to others (mode {:04o})", mode & 0o7777)).hint(hint)
        );
    }
    Ok(())
}

fn in_groups(group: u32) -> bool {
    rustix::process::getegid().as_raw() == group
        || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|item| item.as_raw() == group))
}

fn malformed(place: &str) -> Error {
    Error::key(format!("{place} does not hold 64 hex digits"))
        .hint("`dptext key new PATH` makes a key: 32 random bytes, written as 64 hex digits")
}

fn hex_digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    push_hex(&mut out, bytes);
    out
}

pub fn push_hex(out: &mut String, bytes: &[u8]) {
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    for byte in bytes {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
}

pub fn fingerprint(fingerprints: &Prf, text: Option<&[u8]>) -> Key {
    match text {
        Some(text) => fingerprints.tag(&[&[1], text]),
        None => fingerprints.tag(&[&[0]]),
    }
}
