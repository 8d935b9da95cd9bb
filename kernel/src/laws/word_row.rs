//! The exact law of one word, read as a text of that word is read.

use crate::errors::{Error, Result};
use crate::laws::law::{ExactRow, Law};
use crate::text::input_policy::InputPolicy;
use crate::text::outputs::PAD;
use crate::text::reading::{copy, Fate, Reading};
use crate::text::vocabulary::Vocabulary;

/// What the law of one word is.
pub enum Row {
    Draw(ExactRow),
    Uniform,
    Copy(String),
}

/// The exact law of one word; of `PAD` too, where the vocabulary has it.
pub fn row(law: &dyn Law, vocabulary: &Vocabulary, policy: &InputPolicy, word: &str) -> Result<Row> {
    if let Some(pad) = vocabulary.pad.filter(|_| word == PAD) {
        return law.row(pad).map(Row::Draw);
    }
    let mut reading = Reading::default();
    reading.read(vocabulary, policy, word)?;
    match reading.only(word).ok_or_else(not_a_word)? {
        Fate::Draw(input) => law.row(input).map(Row::Draw),
        Fate::Uniform => Ok(Row::Uniform),
        Fate::Copy => {
            let mut form = Vec::new();
            copy(policy, word, &mut form);
            form.pop();
            String::from_utf8(form).map(Row::Copy).map_err(|_| Error::internal("a word is not UTF-8"))
        }
        Fate::Drop => Err(Error::input("the input policy drops this word before words are counted: nothing is drawn")
            .hint("ask for a word of the vocabulary")),
    }
}

fn not_a_word() -> Error {
    Error::input("the exact distribution is defined for one word; got another number of words, or more than the word")
        .hint("ask for words one by one, without spaces or punctuation around them")
}
