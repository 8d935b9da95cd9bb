//! Law files: a vocabulary and the law over it, mapped once per process and hash. The file's format says which law.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use safetensors::Dtype;

use crate::column::Strings;
use crate::errors::Result;
use crate::keys::Key;
use crate::mapped::{malformed, Mapped};
use crate::policy::InputPolicy;
use crate::release::{self, Released, Row};
use crate::table::Table;
use crate::vocabulary::Vocabulary;

/// An open law file.
pub struct LawFile {
    file: Arc<Mapped>,
    inputs: Range<usize>,
    outputs: Range<usize>,
    kept: Range<usize>,
    pub vocabulary: Vocabulary,
    pub kind: Kind,
}

/// The laws this kernel knows.
pub enum Kind {
    Table(Table),
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
        let format = file.metadata.get("format").map_or("dptext-table/1", String::as_str);
        if !matches!(format, "dptext-table/1") {
            return Err(malformed("it is of another format"));
        }
        let inputs = file.place("inputs", Dtype::U8)?.unwrap_or(0..0);
        let outputs = file.place("outputs", Dtype::U8)?.filter(|range| !range.is_empty()).unwrap_or(inputs.clone());
        let kept = file.place("kept", Dtype::U8)?.unwrap_or(0..0);
        let count = file.lines(&inputs)?.count();
        if count == 0 {
            return Err(malformed("it has no input words"));
        }
        let vocabulary = Vocabulary::new(file.lines(&inputs)?, file.lines(&outputs)?, file.lines(&kept)?)?;
        let kind = Kind::Table(Table::new(file.clone(), count, vocabulary.outputs.len())?);
        Ok(Self { file, inputs, outputs, kept, vocabulary, kind })
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

    /// Number of output sets.
    pub fn sets(&self) -> usize {
        match &self.kind {
            Kind::Table(table) => table.sets,
        }
    }

    /// Size of the largest output set.
    pub fn max_set(&self) -> usize {
        match &self.kind {
            Kind::Table(table) => table.max_set,
        }
    }

    /// Words per slot: 2 if any output set exceeds 4,096, else 1.
    pub fn width(&self) -> usize {
        match &self.kind {
            Kind::Table(table) => table.width,
        }
    }

    /// Releases a column; `key` gives the record key of a row.
    pub fn release(
        &self,
        policy: &InputPolicy,
        texts: &Strings,
        key: &(dyn Fn(usize, Option<&str>) -> Result<Key> + Sync),
        threads: usize,
    ) -> Result<Released> {
        match &self.kind {
            Kind::Table(table) => release::release(table, &self.vocabulary, policy, texts, key, threads),
        }
    }

    /// The exact law of one word: output words and integer weights.
    pub fn row(&self, policy: &InputPolicy, word: &str) -> Result<(Vec<String>, Vec<u128>)> {
        let row = match &self.kind {
            Kind::Table(table) => release::row(table, &self.vocabulary, policy, word)?,
        };
        Ok(match row {
            Row::Copy(word) => (vec![word], vec![1]),
            Row::Uniform => {
                let words = self.outputs()?.map(str::to_owned).collect::<Vec<_>>();
                let weights = vec![1; words.len()];
                (words, weights)
            }
            Row::Draw((members, weights)) => {
                let outputs = self.outputs()?.collect::<Vec<_>>();
                let words = members.iter().filter_map(|&member| outputs.get(member as usize));
                (words.map(|&word| word.to_owned()).collect(), weights)
            }
        })
    }
}
