//! Laws of words: what a word is drawn from, in files that are mapped.

pub mod geometric;
pub mod law;
pub mod law_file;
pub mod lists;
pub mod mapped;
pub mod table;
pub mod tem;
pub mod word_row;
