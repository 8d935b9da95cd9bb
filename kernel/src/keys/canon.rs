//! `canon`: JSON with sorted keys, no blanks, ASCII, as Python's `json.dumps(…, sort_keys=True, ensure_ascii=True)`.

use std::fmt::Write;

/// The most characters that `string` appends: six for a control character of one byte, or for one of two or three.
pub fn longest(text: &str) -> usize {
    2 + 6 * text.len()
}

/// Appends a string as a JSON string of ASCII characters.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// An array of strings.
pub fn array<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::from("[");
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        string(&mut out, item);
    }
    out.push(']');
    out
}

/// An object of strings, its names in ascending order.
pub fn object<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (i, (name, value)) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        string(&mut out, name);
        out.push(':');
        string(&mut out, value);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_is_written_longer_than_was_said() {
        for text in ["", "plain", "a\"b\\", "\n\u{7f}é😀\u{8}\u{0}", "\u{1}\u{2}", "€\u{ffff}", "😀😀"] {
            let mut out = String::new();
            string(&mut out, text);
            assert!(out.len() <= longest(text), "{text:?}");
        }
    }

    #[test]
    fn strings_are_written_as_python_writes_them() {
        assert_eq!(array(["a\"b\\", "\n\u{7f}é😀\u{8}\u{0}"]), r#"["a\"b\\","\n\u007f\u00e9\ud83d\ude00\b\u0000"]"#);
        assert_eq!(object([("a", "1"), ("b\"", "é")]), r#"{"a":"1","b\"":"\u00e9"}"#);
    }
}
