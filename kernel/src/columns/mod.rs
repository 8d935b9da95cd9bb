//! Arrow columns in and out, row by row through a law.

pub mod c_data;
pub mod choose;
pub mod encode;
pub mod id_index;
pub mod ids;
pub mod one_text;
pub mod release;
pub mod strings;
