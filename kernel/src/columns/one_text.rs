//! One text per record: an id that belongs to several texts of a column is refused.
//!
//! Callers that draw one text under many ids, or many texts under one id, have more than one release of a record.

use std::collections::hash_map::{Entry, HashMap};

use crate::columns::strings::Strings;
use crate::errors::{Error, Result};

/// Refuses a column in which an id belongs to several texts; a row that is repeated as it is passes.
pub fn require(texts: &Strings, ids: &Strings) -> Result<()> {
    let mut first = HashMap::with_capacity(ids.len());
    for row in 0..ids.len() {
        match first.entry(ids.get(row)?.unwrap_or_default()) {
            Entry::Vacant(place) => {
                place.insert(row);
            }
            Entry::Occupied(place) if texts.get(*place.get())? == texts.get(row)? => {}
            Entry::Occupied(_) => {
                return Err(Error::input("a record id of a batch belongs to several texts; each record has one text")
                    .hint("give ids that are unique: is it the id column, and are text and id swapped?"))
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::LargeStringArray;

    use super::*;
    use crate::columns::c_data::Chunked;

    fn column(values: &[Option<&str>]) -> Strings {
        Strings::new(&Chunked::one(Arc::new(LargeStringArray::from(values.to_vec())))).unwrap()
    }

    #[test]
    fn a_row_may_come_again_and_another_text_may_not() {
        let ids = column(&[Some("a"), Some("b"), Some("a")]);
        assert!(require(&column(&[Some("x"), None, Some("x")]), &ids).is_ok());
        for other in [Some("y"), None] {
            assert!(require(&column(&[Some("x"), None, other]), &ids).is_err());
        }
    }
}
