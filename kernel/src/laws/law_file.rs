//! Law files: a vocabulary and the law over it, mapped once per process and hash. The file's format says which law.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use safetensors::Dtype;
use serde::Deserialize;

use crate::errors::Result;
use crate::laws::geometric::Geometric;
use crate::laws::law::Law;
use crate::laws::lists::{Lists, OnLists};
use crate::laws::mapped::{malformed, Mapped};
use crate::laws::table::Table;
use crate::laws::tem::Tem;
use crate::laws::word_row::{self, Row};
use crate::text::input_policy::InputPolicy;
use crate::text::outputs::PAD;
use crate::text::vocabulary::Vocabulary;

/// An open law file.
pub struct LawFile {
    file: Arc<Mapped>,
    inputs: Range<usize>,
    outputs: Range<usize>,
    kept: Range<usize>,
    pub vocabulary: Vocabulary,
    pub law: Box<dyn Law>,
}

const TABLE: &str = "dptext-table/1";
const LISTS: &str = "dptext-lists/1";

/// The law of places that a file of lists names.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Named {
    Tem { weights: Vec<u64>, outside: u64 },
    Geometric { rate: (u64, u64) },
}

/// The law of a file of lists of words that are their own outputs.
fn on_lists(file: &Mapped, inputs: usize) -> Result<Box<dyn Law>> {
    let named = file.metadata.get("law").and_then(|law| serde_json::from_str(law).ok());
    let lists = Lists::new(file, inputs)?;
    Ok(match named.ok_or_else(|| malformed("it names no law that this version knows"))? {
        Named::Tem { weights, outside } => {
            let law = Tem::new(&weights, outside, &lists.lens())?;
            Box::new(OnLists { lists, law })
        }
        Named::Geometric { rate: (num, den) } => Box::new(OnLists { lists, law: Geometric::new(num, den)? }),
    })
}

static OPEN: LazyLock<Mutex<HashMap<String, Arc<LawFile>>>> = LazyLock::new(Mutex::default);

impl LawFile {
    /// The law with this hash, mapped from `path` unless the process has it already.
    pub fn open(path: &str, sha256: &str) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(law) = open.get(sha256) {
            return Ok(law.clone());
        }
        let law = Arc::new(Self::new(Mapped::open(path, sha256)?)?);
        open.insert(sha256.to_owned(), law.clone());
        Ok(law)
    }

    fn new(file: Mapped) -> Result<Self> {
        let file = Arc::new(file);
        let inputs = file.place("inputs", Dtype::U8)?.unwrap_or(0..0);
        let outputs = file.place("outputs", Dtype::U8)?.filter(|range| !range.is_empty());
        let kept = file.place("kept", Dtype::U8)?.unwrap_or(0..0);
        let of_its_own = outputs.is_some();
        let outputs = outputs.unwrap_or(inputs.clone());
        let count = file.lines(&inputs)?.count();
        let vocabulary = || Vocabulary::new(file.lines(&inputs)?, file.lines(&outputs)?, file.lines(&kept)?);
        let (vocabulary, law): (_, Box<dyn Law>) = match file.metadata.get("format").map_or(TABLE, String::as_str) {
            TABLE | LISTS if count == 0 => return Err(malformed("it has no input words")),
            TABLE => {
                let vocabulary = vocabulary()?;
                let table = Table::new(file.clone(), count, vocabulary.outputs.len())?;
                (vocabulary, Box::new(table))
            }
            LISTS if of_its_own => return Err(malformed("words of lists are their own outputs")),
            LISTS => (vocabulary()?, on_lists(&file, count)?),
            _ => return Err(malformed("it is of another format")),
        };
        Ok(Self { file, inputs, outputs, kept, vocabulary, law })
    }

    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.file.metadata
    }

    pub fn inputs(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        self.file.lines(&self.inputs)
    }

    pub fn outputs(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        self.file.lines(&self.outputs)
    }

    pub fn kept(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        self.file.lines(&self.kept)
    }

    /// The exact law of one word: output words and their integer weights, one row or several that are drawn from with
    /// equal probability.
    pub fn row(&self, policy: &InputPolicy, word: &str) -> Result<(Vec<String>, Vec<Vec<u64>>)> {
        self.law.check(policy)?;
        let row = word_row::row(&*self.law, &self.vocabulary, policy, word)?;
        Ok(match row {
            Row::Copy(word) => (vec![word], vec![vec![1]]),
            Row::Uniform => {
                let words = self.outputs()?.map(str::to_owned).collect::<Vec<_>>();
                let weights = vec![1; words.len()];
                (words, vec![weights])
            }
            Row::Draw(row) => {
                let words = row.outputs.iter().map(|&output| self.output(output)).collect::<Result<_>>()?;
                (words, row.weights)
            }
        })
    }

    /// The output word with this number.
    fn output(&self, number: u32) -> Result<String> {
        let mut form = Vec::new();
        self.vocabulary.outputs.push(&mut form, number)?;
        match form.pop() {
            None => Ok(PAD.to_owned()),
            Some(_) => String::from_utf8(form).map_err(|_| malformed("an output word is not UTF-8")),
        }
    }
}
