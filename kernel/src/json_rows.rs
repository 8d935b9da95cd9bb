//! Reads every line of an NDJSON file, chunk by chunk, and finds what readers take differently, or lose.
//!
//! It remembers the names of fields, the kinds of their values, and line numbers, and no value.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Objects and lists inside one another; readers have such a limit, too.
const DEEPEST: usize = 128;
/// The largest integer up to which doubles hold every integer.
const EXACT: u128 = 1 << 53;

/// The most fields that are distinguished: names may be values, as in `{"scores": {"NAME": 1}}`.
const FIELDS: usize = 1 << 16;

pub const INTEGER: u8 = 1;
/// An integer that a double may round.
pub const LARGE: u8 = 2;
pub const FLOAT: u8 = 4;
pub const STRING: u8 = 8;

/// Why a line cannot be read without doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file begins as one array of all rows.
    Array,
    /// A line that holds another value than an object.
    Other,
    /// A line that is not JSON.
    Syntax,
    /// The file ends within a line.
    Cut,
    /// A number that JSON does not have: NaN, Infinity.
    NotANumber,
    /// A number that no type holds.
    TooLarge,
    /// Half of a pair of code units, which is not a character.
    Surrogate,
    /// A field that an object has twice.
    Twice,
    /// Bytes that are not UTF-8.
    Encoding,
}

type Kinds = BTreeMap<Vec<String>, u8>;

/// The state between two chunks of a file.
#[derive(Clone, Debug, Default)]
pub struct JsonRows {
    rest: Vec<u8>, // of a line whose end is in the next chunk
    lines: u64,
    pub problem: Option<(Problem, u64)>,
    /// The kinds of the numbers and strings of a field, by the names that lead to it.
    pub kinds: Kinds,
}

impl JsonRows {
    /// Reads on; returns whether the rest can be read, too.
    pub fn feed(&mut self, chunk: &[u8]) -> bool {
        let mut rest = chunk;
        while let (None, Some(end)) = (self.problem, memchr::memchr(b'\n', rest)) {
            let (line, behind) = rest.split_at(end);
            rest = behind.get(1..).unwrap_or_default();
            if self.rest.is_empty() {
                self.read(line, false);
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.read(&whole, false);
            }
        }
        self.rest.extend_from_slice(rest);
        self.problem.is_none()
    }

    /// Reads the last line, if no line break ended it.
    pub fn finish(&mut self) {
        let last = std::mem::take(&mut self.rest);
        if self.problem.is_none() {
            self.read(&last, true);
        }
    }

    fn read(&mut self, line: &[u8], last: bool) {
        self.lines += 1;
        let line = if self.lines == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let mut reader = Reader { bytes: line, at: 0, path: Vec::new(), kinds: &mut self.kinds };
        reader.blanks();
        let problem = match reader.peek() {
            None => return,
            Some(b'[') if self.lines == 1 => Some(Problem::Array),
            Some(b'{') => match std::str::from_utf8(line) {
                Err(_) => Some(Problem::Encoding),
                Ok(_) => reader.line().err(),
            },
            Some(_) => Some(Problem::Other),
        };
        let ended = reader.at >= line.len();
        self.problem = problem.map(|problem| {
            let cut = problem == Problem::Syntax && last && ended;
            (if cut { Problem::Cut } else { problem }, self.lines)
        });
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: Vec<String>,
    kinds: &'a mut Kinds,
}

type Read<T = ()> = Result<T, Problem>;

impl<'a> Reader<'a> {
    fn line(&mut self) -> Read {
        self.value(0)?;
        self.blanks();
        if self.at < self.bytes.len() {
            Err(Problem::Syntax)
        } else {
            Ok(())
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Read {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(Problem::Syntax)
    }

    fn value(&mut self, depth: usize) -> Read {
        if depth > DEEPEST {
            return Err(Problem::Syntax);
        }
        self.blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => {
                self.string()?;
                self.note(STRING);
                Ok(())
            }
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'N' | b'I') => Err(Problem::NotANumber),
            _ => Err(Problem::Syntax),
        }
    }

    fn word(&mut self, word: &[u8]) -> Read {
        word.iter().try_for_each(|&byte| self.take(byte))
    }

    fn object(&mut self, depth: usize) -> Read {
        self.take(b'{')?;
        let mut names: Vec<Cow<'a, str>> = Vec::new();
        self.blanks();
        if self.peek() != Some(b'}') {
            loop {
                self.blanks();
                let name = self.string()?;
                self.path.push(name.clone().into_owned());
                names.push(name);
                self.blanks();
                self.take(b':')?;
                self.value(depth + 1)?;
                self.path.pop();
                self.blanks();
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
            }
        }
        self.take(b'}')?;
        names.sort_unstable();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            Err(Problem::Twice)
        } else {
            Ok(())
        }
    }

    fn list(&mut self, depth: usize) -> Read {
        self.take(b'[')?;
        self.blanks();
        if self.peek() != Some(b']') {
            loop {
                self.value(depth + 1)?;
                self.blanks();
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
            }
        }
        self.take(b']')
    }

    fn string(&mut self) -> Read<Cow<'a, str>> {
        self.take(b'"')?;
        let (begin, bytes) = (self.at, self.bytes);
        let mut escaped = false;
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
            self.at += plain.unwrap_or(rest.len());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(Problem::Syntax),
            }
        }
        let text = std::str::from_utf8(bytes.get(begin..self.at).unwrap_or_default()).unwrap_or_default();
        self.at += 1;
        if !escaped {
            return Ok(Cow::Borrowed(text));
        }
        Ok(serde_json::from_str(&format!("\"{text}\"")).map_or(Cow::Borrowed(text), Cow::Owned))
    }

    fn escape(&mut self) -> Read {
        self.take(b'\\')?;
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        match byte {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => match self.unit()? {
                0xD800..=0xDBFF => {
                    if self.bytes.get(self.at..self.at + 2) != Some(b"\\u") {
                        return Err(Problem::Surrogate);
                    }
                    self.at += 2;
                    if matches!(self.unit()?, 0xDC00..=0xDFFF) {
                        Ok(())
                    } else {
                        Err(Problem::Surrogate)
                    }
                }
                0xDC00..=0xDFFF => Err(Problem::Surrogate),
                _ => Ok(()),
            },
            _ => Err(Problem::Syntax),
        }
    }

    fn unit(&mut self) -> Read<u16> {
        let digits = self.bytes.get(self.at..self.at + 4);
        let Some(digits) = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit)) else {
            self.at = self.at.saturating_add(4).min(self.bytes.len());
            return Err(Problem::Syntax);
        };
        self.at += 4;
        let text = std::str::from_utf8(digits).map_err(|_| Problem::Syntax)?;
        u16::from_str_radix(text, 16).map_err(|_| Problem::Syntax)
    }

    fn digits(&mut self) -> Read {
        let begin = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == begin {
            Err(Problem::Syntax)
        } else {
            Ok(())
        }
    }

    fn number(&mut self) -> Read {
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return Err(Problem::NotANumber);
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1
        } else {
            self.digits()?
        }
        let mut kind = INTEGER;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            kind = FLOAT;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
            kind = FLOAT;
        }
        let text = std::str::from_utf8(self.bytes.get(begin..self.at).unwrap_or_default()).unwrap_or_default();
        if kind == INTEGER {
            match text.parse::<i128>() {
                Err(_) => return Err(Problem::TooLarge),
                Ok(value) if value.unsigned_abs() > EXACT => kind |= LARGE,
                Ok(_) => {}
            }
        } else if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(Problem::TooLarge);
        }
        self.note(kind);
        Ok(())
    }

    fn note(&mut self, kind: u8) {
        if let Some(kinds) = self.kinds.get_mut(&self.path) {
            *kinds |= kind;
            return;
        }
        let deep = if self.kinds.len() < FIELDS { self.path.len() } else { 1 };
        *self.kinds.entry(self.path.iter().take(deep).cloned().collect()).or_default() |= kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize) -> JsonRows {
        let mut rows = JsonRows::default();
        for chunk in bytes.chunks(size) {
            if !rows.feed(chunk) {
                break;
            }
        }
        rows.finish();
        rows
    }

    #[test]
    fn chunks_of_any_size_give_the_same() {
        type Case = (&'static [u8], Option<(Problem, u64)>);
        let files: [Case; 24] = [
            (b"{\"a\":1}\n\n{\"a\":[{\"b\":-0.5e+3}, \"x\\n\\u00e9\", null]}\r\n{ }", None),
            (b"\xef\xbb\xbf{\"a\":\"\\ud83d\\ude00\"}\n", None),
            (b"[{\"a\":1},\n{\"a\":2}]\n", Some((Problem::Array, 1))),
            (b"{\"a\":1}\n[1]\n", Some((Problem::Other, 2))),
            (b"{\"a\":1}\nnull\n", Some((Problem::Other, 2))),
            (b"{\"a\":NaN}\n", Some((Problem::NotANumber, 1))),
            (b"{\"a\":1}\n{\"a\":-Infinity}\n", Some((Problem::NotANumber, 2))),
            (b"{\"a\":\"x\\ud800y\"}\n", Some((Problem::Surrogate, 1))),
            (b"{\"a\":\"\\ud83d\"}\n", Some((Problem::Surrogate, 1))),
            (b"{\"a\":\"\\ud83d\\u0041\"}\n", Some((Problem::Surrogate, 1))),
            (b"{\"\\udc00\":1}\n", Some((Problem::Surrogate, 1))),
            (b"{\"a\":1}\n{\"a\":2", Some((Problem::Cut, 2))),
            (b"{\"a\":1}\n{\"a\":\"x\\", Some((Problem::Cut, 2))),
            (b"{\"a\":\"\\u00", Some((Problem::Cut, 1))),
            (b"{\n\"a\":1}\n", Some((Problem::Syntax, 1))),
            (b"{\"a\":1,}\n", Some((Problem::Syntax, 1))),
            (b"{\"a\":01}\n", Some((Problem::Syntax, 1))),
            (b"{\"a\":1}{\"a\":2}\n", Some((Problem::Syntax, 1))),
            (b"{\"a\":\"x\ty\"}\n", Some((Problem::Syntax, 1))),
            (b"{\"a\":1e999}\n", Some((Problem::TooLarge, 1))),
            (b"{\"a\":1701411834604692317316873037158841057280}\n", Some((Problem::TooLarge, 1))),
            (b"{\"a\":{\"b\":1,\"\\u0062\":2}}\n", Some((Problem::Twice, 1))),
            (b"{\"a\":\"\xff\"}\n", Some((Problem::Encoding, 1))),
            (b"{\"a\":tru}\n", Some((Problem::Syntax, 1))),
        ];
        for (bytes, problem) in files {
            for size in 1..=bytes.len() {
                assert_eq!(read(bytes, size).problem, problem, "{:?} by {size}", String::from_utf8_lossy(bytes));
            }
        }
        let deep = [b"{\"a\":".as_slice(), &vec![b'['; 100_000]].concat();
        assert_eq!(read(&deep, 4096).problem, Some((Problem::Syntax, 1)));
    }

    #[test]
    fn kinds_are_those_of_all_lines() {
        let rows =
            read(b"{\"a\":1,\"b\":[9007199254740993,{\"c\":1.0}]}\n{\"a\":\"x\",\"b\":[-9007199254740992]}\n", 7);
        let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wanted = [(path(&["a"]), INTEGER | STRING), (path(&["b"]), INTEGER | LARGE), (path(&["b", "c"]), FLOAT)];
        assert_eq!(rows.kinds.into_iter().collect::<Vec<_>>(), wanted);
    }
}
