//! Counts the fields of every row of a CSV file, chunk by chunk, and finds what readers take differently.
//!
//! It remembers the names in the header, counts, and line numbers, and nothing else of the file.

/// The most bytes of a header; a file without line breaks must not fill the memory.
const HEADER: usize = 1 << 20;

/// Why the rows behind a line cannot be distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// An odd number of quotes in a field that does not begin with one.
    Inside,
    /// Text behind a closing quote.
    Behind,
    /// A quote that never closes.
    Open,
    /// A carriage return outside quotes that no line feed follows.
    Return,
    /// A line that ends otherwise than the header: by a line feed, or by a carriage return and a line feed.
    Mixed,
    /// A header of more than `HEADER` bytes.
    Header,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Begin,
    Plain,
    Quoted,
    /// Behind a quote in a quoted field: it closes the field, or another one follows.
    Closing,
    /// Behind a carriage return outside quotes.
    Return,
}

/// Rows of another width than the header's: how many there are, and the line and the fields of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    pub count: u64,
    pub line: u64,
    pub fields: u64,
}

impl Others {
    fn add(&mut self, line: u64, fields: u64) {
        if self.count == 0 {
            (self.line, self.fields) = (line, fields);
        }
        self.count += 1;
    }
}

/// The state between two chunks of a file.
#[derive(Clone, Debug)]
pub struct CsvRows {
    separator: u8,
    quote: Option<u8>,
    place: Place,
    odd: bool,             // whether the field, which no quote begins, has an odd number of quotes
    fields: u64,           // of the row so far
    begun: u64,            // line in which the row begins
    opened: u64,           // line in which the last quoted field begins
    empty: bool,           // whether the row has no byte so far
    size: usize,           // bytes of the header
    returns: Option<bool>, // whether lines end by a carriage return and a line feed, as the first does
    pub line: u64,
    pub header: Vec<Vec<u8>>,
    pub others: Others,
    pub blank: Others,
    pub problem: Option<(Problem, u64)>,
    named: bool, // whether the header is complete
}

impl CsvRows {
    #[must_use]
    pub fn new(separator: u8, quote: Option<u8>) -> Self {
        Self {
            separator,
            quote,
            place: Place::Begin,
            odd: false,
            fields: 1,
            begun: 1,
            opened: 1,
            empty: true,
            size: 0,
            returns: None,
            line: 1,
            header: vec![Vec::new()],
            others: Others::default(),
            blank: Others::default(),
            problem: None,
            named: false,
        }
    }

    /// Reads on; returns whether the rest can be read, too.
    pub fn feed(&mut self, chunk: &[u8]) -> bool {
        let mut rest = chunk;
        while self.problem.is_none() {
            rest = self.skip(rest);
            let Some((&byte, behind)) = rest.split_first() else { break };
            rest = behind;
            if let Some(problem) = self.step(byte) {
                let line = if problem == Problem::Inside { self.begun } else { self.line };
                self.problem = Some((problem, line));
            }
        }
        self.problem.is_none()
    }

    /// Ends the last row, if no line break ended it.
    pub fn finish(&mut self) {
        if self.problem.is_some() {
            return;
        }
        match self.place {
            Place::Quoted => self.problem = Some((Problem::Open, self.opened)),
            Place::Return => self.problem = Some((Problem::Return, self.line)),
            _ if self.odd => self.problem = Some((Problem::Inside, self.begun)),
            _ if !self.empty => self.end_row(),
            _ => {}
        }
    }

    /// Leaves out bytes that change nothing.
    fn skip<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        if !self.named {
            return chunk;
        }
        let (separator, quote) = (self.separator, self.quote);
        let end = match self.place {
            Place::Plain => chunk.iter().position(|&b| b == separator || b == b'\n' || b == b'\r' || Some(b) == quote),
            Place::Quoted => memchr::memchr2(quote.unwrap_or(b'\n'), b'\n', chunk),
            _ => Some(0),
        };
        chunk.get(end.unwrap_or(chunk.len())..).unwrap_or_default()
    }

    fn step(&mut self, byte: u8) -> Option<Problem> {
        if !self.named && byte != b'\n' {
            self.size += 1;
            if self.size > HEADER {
                return Some(Problem::Header);
            }
        }
        let quote = Some(byte) == self.quote;
        match self.place {
            Place::Return if byte != b'\n' => return Some(Problem::Return),
            Place::Quoted => match byte {
                _ if quote => self.place = Place::Closing,
                b'\n' => {
                    self.line += 1;
                    self.name(byte);
                }
                _ => self.name(byte),
            },
            Place::Closing if quote => {
                self.place = Place::Quoted;
                self.name(byte);
            }
            Place::Closing if byte != self.separator && byte != b'\n' && byte != b'\r' => {
                return Some(Problem::Behind);
            }
            _ if byte == self.separator || byte == b'\n' || byte == b'\r' => {
                if self.odd {
                    return Some(Problem::Inside);
                }
                match byte {
                    b'\n' => {
                        let returns = self.place == Place::Return;
                        if *self.returns.get_or_insert(returns) != returns {
                            return Some(Problem::Mixed);
                        }
                        self.line += 1;
                        self.end_row();
                        return None;
                    }
                    b'\r' => self.place = Place::Return,
                    _ => self.end_field(),
                }
                self.empty &= byte == b'\r';
                return None;
            }
            Place::Begin if quote => (self.place, self.opened) = (Place::Quoted, self.line),
            _ => {
                self.place = Place::Plain;
                self.odd ^= quote;
                self.name(byte);
            }
        }
        self.empty = false;
        None
    }

    fn name(&mut self, byte: u8) {
        if let (false, Some(name)) = (self.named, self.header.last_mut()) {
            name.push(byte);
        }
    }

    fn end_field(&mut self) {
        self.place = Place::Begin;
        self.fields += 1;
        if !self.named {
            self.header.push(Vec::new());
        }
    }

    fn end_row(&mut self) {
        let width = self.header.len() as u64;
        if self.named {
            if self.empty && width > 1 {
                self.blank.add(self.begun, 0);
            } else if self.fields != width {
                self.others.add(self.begun, self.fields);
            }
        } else if self.empty {
            self.blank.add(self.begun, 0); // in the place of the header
        } else {
            self.named = true;
        }
        (self.place, self.fields, self.begun, self.empty) = (Place::Begin, 1, self.line, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static [u8], Others, Others, Option<(Problem, u64)>);

    fn read(bytes: &[u8], size: usize) -> CsvRows {
        let mut rows = CsvRows::new(b',', Some(b'"'));
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
        let files: [Case; 16] = [
            (b"a,b\n1,2\n3,4", others(0, 0, 0), others(0, 0, 0), None),
            (b"a,b\r\n1,\"x\r\ny\"\"z\"\r\n,\r\n", others(0, 0, 0), others(0, 0, 0), None),
            (b"a,b\n1\n1,2,3\n1,2,3,4\n", others(3, 2, 1), others(0, 0, 0), None),
            (b"a,b\n\"1\n2\",3\n4\n", others(1, 4, 1), others(0, 0, 0), None),
            (b"a,b\n\n1,2\n\n", others(0, 0, 0), others(2, 2, 0), None),
            (b"\na,b\n1,2\n", others(0, 0, 0), others(1, 1, 0), None),
            (b"a\n\n1\n", others(0, 0, 0), others(0, 0, 0), None),
            (b"a,b\n1,he said \"yes\"\n", others(0, 0, 0), others(0, 0, 0), None),
            (b"a,b\n1,5\" wide\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Inside, 2))),
            (b"a,b\n1,2\n1,5\" wide", others(0, 0, 0), others(0, 0, 0), Some((Problem::Inside, 3))),
            (b"a,b\n1,\"x \\\"y\\\"\"\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Behind, 2))),
            (b"a,b\n1,2\n3,\"x\n4,5\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Open, 3))),
            (b"a,b\n1,2\r3,4\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Return, 2))),
            (b"a,b\n1,2\r\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Mixed, 2))),
            (b"a,b\r\n\"1\n\",2\r\n1,2\n", others(0, 0, 0), others(0, 0, 0), Some((Problem::Mixed, 4))),
            (b"a,b\n1,2\r", others(0, 0, 0), others(0, 0, 0), Some((Problem::Return, 2))),
        ];
        for (bytes, others, blank, problem) in files {
            for size in 1..=bytes.len() {
                let found = read(bytes, size);
                assert_eq!((found.others, found.blank, found.problem), (others, blank, problem), "{bytes:?} by {size}");
            }
        }
    }

    fn others(count: u64, line: u64, fields: u64) -> Others {
        Others { count, line, fields }
    }

    #[test]
    fn names_are_those_of_the_header() {
        let names = |bytes: &[u8]| read(bytes, 2).header;
        assert_eq!(names(b"a,\"b\"\"\n,c\",\n1,2,3\n"), [b"a".to_vec(), b"b\"\n,c".to_vec(), vec![]]);
        assert_eq!(names(b"a,b"), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(read(&vec![b'x'; HEADER + 1], 4096).problem, Some((Problem::Header, 1)));
    }
}
