//! Files that are mapped, known by their hash: tensors by name, numbers and word lists in place.

use std::collections::HashMap;
use std::ops::Range;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::errors::{reason, Error, Result};
use crate::keys::secrets::hex;

/// A mapped safetensors file: where its tensors lie and what it says of itself.
pub struct Mapped {
    map: Mmap,
    places: HashMap<String, Place>,
    pub metadata: HashMap<String, String>,
}

struct Place {
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl Mapped {
    /// Maps the file at `path`, which must have this hash.
    pub fn open(path: &str, sha256: &str) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::artifact(format!("the table file {path} cannot be read ({})", reason(&error)))
                .hint("build the mechanism's table again, or bring its file to this machine")
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        // SAFETY: the mapping is private and read-only. Tables are written once under another name and renamed into
        // place, never changed; should another process cut the file all the same, this process ends by SIGBUS.
        // Everything that bounds an access is copied out and checked when a law is made of the file; what is left in
        // the mapping only chooses among checked indices.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let found = hex(&Sha256::digest(&map));
        if found != sha256 {
            return Err(Error::artifact(format!("the table file {path} is not the one named: its SHA-256 is {found}"))
                .hint(format!("the configuration names {sha256}; restore that file or build the table again")));
        }
        Self::parse(map)
    }

    fn parse(map: Mmap) -> Result<Self> {
        let broken = |_| malformed("it is not a safetensors file");
        let file = SafeTensors::deserialize(&map).map_err(broken)?;
        let (_, header) = SafeTensors::read_metadata(&map).map_err(broken)?;
        let metadata = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut places = HashMap::new();
        for (name, tensor) in file.iter() {
            let start = (tensor.data().as_ptr() as usize).wrapping_sub(map.as_ptr() as usize);
            let range = start..start + tensor.data().len();
            if map.get(range.clone()).is_none() {
                return Err(malformed("a tensor lies outside the file"));
            }
            let place = Place { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), range };
            places.insert(name.to_owned(), place);
        }
        Ok(Self { map, places, metadata })
    }

    /// Where a tensor of one dimension lies in the file, if it is there.
    pub fn place(&self, name: &str, dtype: Dtype) -> Result<Option<Range<usize>>> {
        match self.places.get(name) {
            None => Ok(None),
            Some(place) if place.dtype == dtype && place.shape.len() == 1 => Ok(Some(place.range.clone())),
            Some(_) => Err(malformed(&format!("{name} is not one row of {dtype:?}"))),
        }
    }

    /// Where a tensor that must be there lies.
    pub fn needed(&self, name: &str, dtype: Dtype) -> Result<Range<usize>> {
        self.place(name, dtype)?.ok_or_else(|| malformed(&format!("{name} is missing")))
    }

    /// Where a matrix that must be there lies, its rows and its columns.
    pub fn matrix(&self, name: &str, dtype: Dtype) -> Result<(Range<usize>, usize, usize)> {
        let place = self.places.get(name).filter(|place| place.dtype == dtype);
        match place.map(|place| (place, place.shape.as_slice())) {
            Some((place, &[rows, columns])) => Ok((place.range.clone(), rows, columns)),
            _ => Err(malformed(&format!("{name} is not a matrix of {dtype:?}"))),
        }
    }

    /// Numbers at a place of the file, in the machine's own byte order.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self, range: Range<usize>) -> Result<&[T]> {
        if cfg!(target_endian = "big") {
            return Err(Error::artifact("tables are read only on little-endian machines"));
        }
        let bytes = self.map.get(range).ok_or_else(|| malformed("a tensor lies outside the file"))?;
        bytemuck::try_cast_slice(bytes).map_err(|_| malformed("a tensor is not aligned to its numbers"))
    }

    /// Gives the memory of some bytes of the file back to the system, which reads them again when they are used.
    pub fn give_back<T>(&self, part: &[T]) {
        #[cfg(target_os = "linux")]
        {
            let page = rustix::param::page_size();
            let (start, end) = (part.as_ptr().addr().next_multiple_of(page), part.as_ptr_range().end.addr());
            let inside = self.map.as_ptr_range();
            if (inside.start.addr()..=inside.end.addr()).contains(&start) && start < end / page * page {
                let start_at = inside.start.with_addr(start).cast_mut().cast();
                // SAFETY: whole pages of a read-only mapping of a file: what they hold is read from the file again.
                let _ = unsafe {
                    rustix::mm::madvise(start_at, end / page * page - start, rustix::mm::Advice::LinuxDontNeed)
                };
            }
        }
    }

    /// Words at a place of the file, one per line.
    pub fn lines(&self, range: &Range<usize>) -> Result<impl Iterator<Item = &str> + Clone> {
        let bytes = self.map.get(range.clone()).ok_or_else(|| malformed("a word list lies outside the file"))?;
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("a word list is not UTF-8"))?;
        let mut words = text.split('\n');
        if text.is_empty() {
            words.next();
        } else if words.clone().any(str::is_empty) {
            return Err(malformed("a word list holds an empty word"));
        }
        Ok(words)
    }
}

pub fn malformed(what: &str) -> Error {
    Error::artifact(format!("the table file is malformed: {what}")).hint(
        "its layout is \"dptext-table/1\", \"dptext-lists/1\" or \"dptext-corpus/1\"; build it again with this version",
    )
}

/// Spans between rising offsets that start at 0 and end at `end`.
pub fn spans(offsets: &[u64], end: usize, name: &str) -> Result<Vec<Range<usize>>> {
    let whole = offsets.first() == Some(&0) && offsets.last() == Some(&(end as u64)) && offsets.is_sorted();
    if !whole {
        return Err(malformed(&format!("{name} does not rise from 0 to the end")));
    }
    Ok(offsets
        .windows(2)
        .filter_map(|pair| match pair {
            [from, to] => Some(*from as usize..*to as usize),
            _ => None,
        })
        .collect())
}
