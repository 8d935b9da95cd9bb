//! Laws of words and of whole texts: what is drawn, in files that are mapped.

pub mod corpus;
pub mod exact;
pub mod geometric;
pub mod law;
pub mod law_file;
pub mod lists;
pub mod mapped;
pub mod nearest;
pub mod output_sets;
pub mod products;
pub mod ranks;
pub mod successes;
pub mod sums;
pub mod table;
pub mod tem;
pub mod word_row;
