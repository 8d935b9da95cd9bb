//! Texts as words, and words as texts.

pub mod blocks;
pub mod classes;
pub mod copies;
pub mod input_policy;
pub mod lexicon;
pub mod marks;
pub mod outputs;
pub mod packed;
pub mod patterns;
pub mod reading;
pub mod vocabulary;
pub mod words;
pub mod written;
