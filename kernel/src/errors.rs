//! Errors of the kernel: what, what was got, what is allowed, then a hint. Never a text, an id, a word or a key.

use std::borrow::Cow;

/// Which class of `dptext_etl.errors` an error becomes in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key reference that cannot be resolved, or is not safe to use.
    Key,
    /// A table file that is missing, malformed or not the one that was named.
    Artifact,
    /// A column whose type or content cannot be processed.
    Input,
    /// A configuration that the kernel does not know.
    Policy,
    /// A defect of the kernel itself; fails closed.
    Internal,
}

/// An error of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub message: Cow<'static, str>,
    pub hint: Option<Cow<'static, str>>,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Why the system refused a file, in the words that people know.
pub fn reason(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or folder",
        std::io::ErrorKind::PermissionDenied => "permission denied",
        std::io::ErrorKind::AlreadyExists => "the file exists",
        std::io::ErrorKind::InvalidData => "not UTF-8 text",
        _ => "input/output error",
    }
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub fn key(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Key, message)
    }

    pub fn artifact(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Artifact, message)
    }

    pub fn input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Input, message)
    }

    pub fn policy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Policy, message)
    }

    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Internal, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nHint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
