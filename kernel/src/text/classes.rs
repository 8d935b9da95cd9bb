//! What each byte of a text is to the rules of word boundaries.

/// Word break classes of ASCII (UAX 29, table 3).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Letter,
    Digit,
    /// `_`
    ExtendNumLet,
    /// `:`
    MidLetter,
    /// `,` and `;`
    MidNum,
    /// `.` and `'`
    MidNumLet,
    Space,
    Other,
    /// A byte of a character that is not ASCII.
    Wide,
    End,
}

const fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b'_' => Class::ExtendNumLet,
        b':' => Class::MidLetter,
        b',' | b';' => Class::MidNum,
        b'.' | b'\'' => Class::MidNumLet,
        b' ' => Class::Space,
        0x80.. => Class::Wide,
        _ => Class::Other,
    }
}

// Indexed while compiling, never while running.
#[allow(clippy::indexing_slicing)]
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = class(byte as u8);
        byte += 1;
    }
    classes
};

/// The class of the byte at a place of a text.
#[inline(always)]
pub fn class_at(bytes: &[u8], at: usize) -> Class {
    bytes.get(at).and_then(|&byte| CLASSES.get(usize::from(byte))).copied().unwrap_or(Class::End)
}
