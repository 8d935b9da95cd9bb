//! Patterns without a blank, searched in what is released: which of several forms of writing occur where.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::{memchr, memrchr};

use crate::errors::{Error, Result};

/// Patterns of some forms of writing.
pub struct Form {
    pub patterns: Vec<Vec<u8>>,
    pub any_case: bool,
}

/// The patterns of all forms, made ready to be searched.
pub struct Patterns {
    searches: Vec<Search>,
    forms: usize,
    shortest: usize,
    longest: usize,
}

/// Patterns that are searched together, and the form of each.
struct Search {
    automaton: AhoCorasick,
    forms: Vec<usize>,
}

impl Patterns {
    /// Refuses patterns that are empty or hold a blank, which are not found between blanks, and more forms than bits.
    pub fn new(forms: &[Form]) -> Result<Self> {
        if forms.len() > u64::BITS as usize {
            return Err(Error::input("patterns have at most 64 forms"));
        }
        let every = || forms.iter().flat_map(|form| &form.patterns);
        if every().any(|pattern| pattern.is_empty() || pattern.contains(&b' ')) {
            return Err(Error::input("a pattern has a byte at least, and no blank"));
        }
        let searches = [true, false].into_iter().map(|any_case| Search::new(forms, any_case)).collect::<Result<_>>()?;
        let lengths = || every().map(Vec::len);
        let (shortest, longest) = (lengths().min().unwrap_or(usize::MAX), lengths().max().unwrap_or(1));
        Ok(Self { searches, forms: forms.len(), shortest, longest })
    }

    /// A count of nothing for each form.
    pub fn none(&self) -> Vec<u64> {
        vec![0; self.forms]
    }

    /// Counts, by form, the occurrences that end behind the first `after` bytes.
    pub fn occurrences(&self, bytes: &[u8], after: usize) -> Vec<u64> {
        let mut counts = self.none();
        for (from, stretch) in Stretches::of(bytes, self.shortest) {
            self.each(stretch, |form, _, end| {
                if let Some(count) = counts.get_mut(form).filter(|_| from + end > after) {
                    *count += 1;
                }
            });
        }
        counts
    }

    /// Counts a text for each form that it holds.
    pub fn count_in(&self, text: &[u8], counts: &mut [u64]) {
        let mut held = 0;
        for (_, stretch) in Stretches::of(text, self.shortest) {
            self.each(stretch, |form, _, _| held |= 1 << form);
        }
        count_held(held, counts);
    }

    /// Counts a pair of texts for each form of which a pattern begins in the one and ends in the other.
    pub fn count_across(&self, left: &[u8], right: &[u8], counts: &mut [u64]) {
        let near = self.longest - 1;
        let left = left.get(left.len().saturating_sub(near)..).unwrap_or_default();
        let right = right.get(..near).unwrap_or(right);
        let left = left.get(memrchr(b' ', left).map_or(0, |blank| blank + 1)..).unwrap_or_default();
        let right = right.get(..memchr(b' ', right).unwrap_or(right.len())).unwrap_or_default();
        if left.is_empty() || right.is_empty() || left.len() + right.len() < self.shortest {
            return;
        }
        let mut held = 0;
        self.each(&[left, right].concat(), |form, start, end| {
            if start < left.len() && end > left.len() {
                held |= 1 << form;
            }
        });
        count_held(held, counts);
    }

    /// Calls `found` with the form, the start and the end of every occurrence.
    fn each(&self, stretch: &[u8], mut found: impl FnMut(usize, usize, usize)) {
        for search in &self.searches {
            for occurrence in search.automaton.find_overlapping_iter(stretch) {
                if let Some(&form) = search.forms.get(occurrence.pattern().as_usize()) {
                    found(form, occurrence.start(), occurrence.end());
                }
            }
        }
    }
}

impl Search {
    /// The patterns of the forms in which case matters, or of those in which it does not.
    fn new(forms: &[Form], any_case: bool) -> Result<Self> {
        let together = forms.iter().enumerate().filter(|(_, form)| form.any_case == any_case);
        let (forms, patterns): (Vec<_>, Vec<_>) =
            together.flat_map(|(at, form)| form.patterns.iter().map(move |pattern| (at, pattern))).unzip();
        let built = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .ascii_case_insensitive(any_case)
            .build(patterns);
        Ok(Self { automaton: built.map_err(|_| Error::input("these are too many patterns"))?, forms })
    }
}

/// Counts one for each form whose bit is set.
fn count_held(held: u64, counts: &mut [u64]) {
    for (form, count) in counts.iter_mut().enumerate() {
        *count += held >> form & 1;
    }
}

/// The bytes between blanks that have at least this number, and where they begin.
struct Stretches<'t> {
    bytes: &'t [u8],
    from: usize,
    least: usize,
}

impl<'t> Stretches<'t> {
    fn of(bytes: &'t [u8], least: usize) -> Self {
        Self { bytes, from: 0, least }
    }
}

impl<'t> Iterator for Stretches<'t> {
    type Item = (usize, &'t [u8]);

    /// Looks at as few bytes as may be: from the last one that the next stretch must have back to a blank.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let from = self.from;
            let rest = self.bytes.get(from..)?;
            match memrchr(b' ', rest.get(..self.least)?) {
                Some(blank) => self.from = from + blank + 1,
                None => {
                    let len = memchr(b' ', rest).unwrap_or(rest.len());
                    self.from = from + len + 1;
                    return rest.get(..len).map(|stretch| (from, stretch));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_random::numbers;

    /// Texts of up to 40 letters and blanks.
    fn texts() -> impl Iterator<Item = Vec<u8>> {
        let mut numbers = numbers(9);
        let mut next = move || numbers() as usize;
        (0..20_000).map(move |_| (0..next() % 41).map(|_| b"aaabbAB \0"[next() % 9]).collect())
    }

    fn patterns() -> Patterns {
        let form = |patterns: &[&[u8]], any_case| Form {
            patterns: patterns.iter().map(|one| one.to_vec()).collect(),
            any_case,
        };
        Patterns::new(&[form(&[b"aab", b"ba\0"], true), form(&[b"aB"], false), form(&[b"abba", b"a"], true)]).unwrap()
    }

    /// Places of all occurrences by form, one after the other.
    fn plainly(text: &[u8]) -> Vec<Vec<(usize, usize)>> {
        let places = |text: &[u8], pattern: &[u8]| {
            (0..text.len())
                .filter(|&at| text[at..].starts_with(pattern))
                .map(|at| (at, at + pattern.len()))
                .collect::<Vec<_>>()
        };
        let lower = text.to_ascii_lowercase();
        vec![
            [places(&lower, b"aab"), places(&lower, b"ba\0")].concat(),
            places(text, b"aB"),
            [places(&lower, b"abba"), places(&lower, b"a")].concat(),
        ]
    }

    #[test]
    fn occurrences_are_those_of_a_plain_search() {
        let found = patterns();
        for text in texts() {
            let plain = plainly(&text);
            for after in [0, 1, 7, 40] {
                let expected = plain
                    .iter()
                    .map(|form| form.iter().filter(|place| place.1 > after).count() as u64)
                    .collect::<Vec<_>>();
                assert_eq!(found.occurrences(&text, after), expected, "{text:?} {after}");
            }
            let mut cells = found.none();
            found.count_in(&text, &mut cells);
            let expected = plain.iter().map(|form| u64::from(!form.is_empty())).collect::<Vec<_>>();
            assert_eq!(cells, expected, "{text:?}");
        }
    }

    #[test]
    fn a_pattern_across_two_texts_begins_in_the_one_and_ends_in_the_other() {
        let found = patterns();
        let all = texts().collect::<Vec<_>>();
        for (left, right) in all.iter().zip(all.iter().skip(1)) {
            let mut counts = found.none();
            found.count_across(left, right, &mut counts);
            let joined = plainly(&[&left[..], right].concat());
            let crossing =
                |form: &Vec<(usize, usize)>| form.iter().any(|place| place.0 < left.len() && place.1 > left.len());
            assert_eq!(
                counts,
                joined.iter().map(|form| u64::from(crossing(form))).collect::<Vec<_>>(),
                "{left:?} {right:?}"
            );
        }
    }

    #[test]
    fn long_stretches_are_found_wherever_they_stand() {
        for text in texts() {
            for least in 1..12 {
                let expected =
                    text.split(|&byte| byte == b' ').filter(|stretch| stretch.len() >= least).collect::<Vec<_>>();
                let found = Stretches::of(&text, least).collect::<Vec<_>>();
                assert_eq!(found.iter().map(|place| place.1).collect::<Vec<_>>(), expected, "{text:?} {least}");
                assert!(found.iter().all(|(from, stretch)| text[*from..].starts_with(stretch)));
            }
        }
    }

    #[test]
    fn patterns_that_cannot_be_found_are_refused() {
        for pattern in [b"".to_vec(), b"a b".to_vec()] {
            assert!(Patterns::new(&[Form { patterns: vec![pattern], any_case: true }]).is_err());
        }
        let forms =
            |many| (0..many).map(|_| Form { patterns: vec![b"a".to_vec()], any_case: true }).collect::<Vec<_>>();
        assert!(Patterns::new(&forms(65)).is_err());
        let most = Patterns::new(&forms(64)).unwrap();
        let mut counts = most.none();
        most.count_in(b"a a", &mut counts);
        assert_eq!(counts, vec![1; 64]);
        assert_eq!(most.occurrences(b"a a", 0), vec![2; 64]);
        assert_eq!(Patterns::new(&[]).unwrap().occurrences(b"anything", 0), Vec::<u64>::new());
    }
}
