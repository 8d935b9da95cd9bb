//! A corpus: public texts with their vectors, and the encoder of other texts, in a mapped file ("dptext-corpus/1").
//!
//! What bounds an access is checked when the file is opened; vectors, word vectors and texts stay in the mapping.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use safetensors::Dtype;

use crate::errors::{Error, Result};
use crate::laws::mapped::{malformed, Mapped};
use crate::laws::products::{Packed, BLOCK};
use crate::laws::sums;
use crate::text::lexicon::{Entry, Lexicon};
use crate::text::words;

const FORMAT: &str = "dptext-corpus/1";
const MOST_DIMENSIONS: usize = 1040;
/// Vectors that are packed before their pages are given back.
const PIECE: usize = 512 * BLOCK;

/// An open corpus.
pub struct Corpus {
    file: Mapped,
    /// Where each text begins in the file, and one place behind the last; a line break is between.
    starts: Vec<u64>,
    vectors: Range<usize>,
    /// The vectors as queries meet them, once a query did.
    packed: OnceLock<Packed>,
    /// Dimensions of a vector.
    pub k: usize,
    words: Lexicon,
    word_vectors: Range<usize>,
}

/// Buffers of one thread that encodes.
#[derive(Default)]
pub struct Encoding {
    /// The words of a text by number, `UNKNOWN` for others.
    words: Vec<u32>,
    sum: Vec<i32>,
    /// The vector of the last part that was encoded.
    pub vector: Vec<i8>,
}

/// Names no row of word vectors.
const UNKNOWN: u32 = u32::MAX;

static OPEN: LazyLock<Mutex<HashMap<String, Arc<Corpus>>>> = LazyLock::new(Mutex::default);

impl Corpus {
    /// The corpus with this hash, mapped from `path` unless the process has it already.
    pub fn open(path: &str, sha256: &str) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(corpus) = open.get(sha256) {
            return Ok(corpus.clone());
        }
        let corpus = Arc::new(Self::new(Mapped::open(path, sha256)?)?);
        open.insert(sha256.to_owned(), corpus.clone());
        Ok(corpus)
    }

    fn new(file: Mapped) -> Result<Self> {
        if file.metadata.get("format").map(String::as_str) != Some(FORMAT) {
            return Err(malformed("it is not a corpus"));
        }
        let (vectors, rows, k) = file.matrix("vectors", Dtype::I8)?;
        let (word_vectors, known, columns) = file.matrix("word_vectors", Dtype::I16)?;
        let (texts, words) = (file.needed("texts", Dtype::U8)?, file.needed("words", Dtype::U8)?);
        if !(1..=MOST_DIMENSIONS).contains(&k) || columns != k || rows < 2 || u32::try_from(rows).is_err() {
            return Err(malformed("a corpus has 2 texts or more, of vectors of 1 to 1,040 dimensions"));
        }
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(texts.start as u64);
        for line in file.lines(&texts)? {
            let start = starts.last().copied().unwrap_or(0);
            starts.push(start + line.len() as u64 + 1);
        }
        let lexicon = Lexicon::new(file.lines(&words)?, std::iter::empty())?;
        if starts.len() != rows + 1 || file.lines(&words)?.count() != known {
            return Err(malformed("texts or words are not as many as their vectors"));
        }
        if file.numbers::<i8>(vectors.clone())?.contains(&i8::MIN) {
            return Err(malformed("vectors hold numbers from -127 to 127"));
        }
        file.numbers::<i16>(word_vectors.clone())?;
        Ok(Self { file, starts, vectors, packed: OnceLock::new(), k, words: lexicon, word_vectors })
    }

    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.file.metadata
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The vectors of the texts, packed at first use and held for the process. The file's own pages are given back.
    pub fn packed(&self) -> Result<&Packed> {
        let vectors = self.file.numbers::<i8>(self.vectors.clone())?;
        Ok(self.packed.get_or_init(|| {
            let mut packed = Packed::with_capacity(self.len(), self.k);
            for piece in vectors.chunks(PIECE * self.k) {
                packed.extend(piece);
                self.file.give_back(piece);
            }
            packed
        }))
    }

    /// The text with this number.
    pub fn text(&self, number: usize) -> Result<&str> {
        let missing = || Error::internal("a text of the corpus is not there");
        let (start, end) = match self.starts.get(number..).and_then(<[u64]>::first_chunk::<2>) {
            Some(&[start, next]) => (start as usize, next as usize - 1),
            None => return Err(missing()),
        };
        // the file was UTF-8 when it was opened; a mapping may change under this process
        std::str::from_utf8(self.file.numbers(start..end)?).map_err(|_| malformed("a text is not UTF-8"))
    }

    /// Finds the words of a text that is encoded next, `n_max` of them.
    pub fn read(&self, text: &str, n_max: usize, encoding: &mut Encoding) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::input("a text has 4 GiB or more").hint("split such documents into records"));
        }
        encoding.words.clear();
        words::scan(text, |range, packed| {
            if encoding.words.len() == n_max {
                return ControlFlow::Break(());
            }
            encoding.words.push(match self.words.find(text, range, packed) {
                Some(Entry::Input(word)) => word,
                _ => UNKNOWN,
            });
            ControlFlow::Continue(())
        });
        Ok(())
    }

    /// Encodes one of several consecutive parts of the text that was read into `encoding.vector`; false if the part
    /// says nothing: no word of it is known, or they add up to zero.
    pub fn encode(&self, part: usize, parts: usize, encoding: &mut Encoding) -> Result<bool> {
        let Encoding { words, sum, vector } = encoding;
        let edge = |part: usize| part * words.len() / parts.max(1);
        let words = words.get(edge(part)..edge(part + 1)).unwrap_or_default();
        sum.clear();
        sum.resize(self.k, 0);
        vector.resize(self.k, 0);
        sums::add(self.file.numbers(self.word_vectors.clone())?, words.iter().copied(), sum);
        Ok(sums::quantise(sum, vector))
    }
}
