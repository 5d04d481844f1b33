//! Nicolas Seriot's JSONTestSuite: texts that must be accepted, texts that must be refused, and a
//! table of the decisions where RFC 8259 leaves the choice.

#![allow(clippy::unwrap_used)]

use astjson::{Document, ParseErrorKind};

/// The texts whose treatment RFC 8259 leaves open. `None` = accepted; all others are refused.
///
/// Numbers of any size are text here, so none is out of range. The grammar allows lone surrogates;
/// they are printed as they were written and decode to U+FFFD. Invalid UTF-8 is refused, and so is
/// a byte order mark (section 8.1 leaves that to the parser; senders must not add one).
const CHOICES: &[(&str, Option<ParseErrorKind>)] = &[
    ("i_number_double_huge_neg_exp.json", None),
    ("i_number_huge_exp.json", None),
    ("i_number_neg_int_huge_exp.json", None),
    ("i_number_pos_double_huge_exp.json", None),
    ("i_number_real_neg_overflow.json", None),
    ("i_number_real_pos_overflow.json", None),
    ("i_number_real_underflow.json", None),
    ("i_number_too_big_neg_int.json", None),
    ("i_number_too_big_pos_int.json", None),
    ("i_number_very_big_negative_int.json", None),
    ("i_object_key_lone_2nd_surrogate.json", None),
    ("i_string_1st_surrogate_but_2nd_missing.json", None),
    ("i_string_1st_valid_surrogate_2nd_invalid.json", None),
    ("i_string_UTF-16LE_with_BOM.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_UTF-8_invalid_sequence.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_UTF8_surrogate_U+D800.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_incomplete_surrogate_and_escape_valid.json", None),
    ("i_string_incomplete_surrogate_pair.json", None),
    ("i_string_incomplete_surrogates_escape_valid.json", None),
    ("i_string_invalid_lonely_surrogate.json", None),
    ("i_string_invalid_surrogate.json", None),
    ("i_string_invalid_utf-8.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_inverted_surrogates_U+1D11E.json", None),
    ("i_string_iso_latin_1.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_lone_second_surrogate.json", None),
    ("i_string_lone_utf8_continuation_byte.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_not_in_unicode_range.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_overlong_sequence_2_bytes.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_overlong_sequence_6_bytes.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_overlong_sequence_6_bytes_null.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_truncated-utf-8.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_utf16BE_no_BOM.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_string_utf16LE_no_BOM.json", Some(ParseErrorKind::InvalidUtf8)),
    ("i_structure_500_nested_arrays.json", None),
    ("i_structure_UTF-8_BOM_empty_object.json", Some(ParseErrorKind::ExpectedValue)),
];

/// Name and content of every file whose name starts with `prefix`.
fn files(prefix: &str) -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/json-test-suite");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            let wanted = name.starts_with(prefix);
            wanted.then(|| (name, std::fs::read(&path).unwrap()))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn accepts_valid_texts_and_reprints_them_to_equal_json() {
    let files = files("y_");
    assert_eq!(files.len(), 95);
    let mut doc = Document::new();
    for (name, text) in files {
        doc.reset();
        let root = doc.parse(text.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for pretty in [false, true] {
            let mut printed = Vec::new();
            if pretty {
                doc.print_pretty(root, &mut printed);
            } else {
                doc.print(root, &mut printed);
            }
            // serde_json drops duplicate keys as lookups do here: the last one counts.
            let ours: serde_json::Value = serde_json::from_slice(&printed).unwrap();
            let theirs: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(ours, theirs, "{name}");
        }
    }
}

#[test]
fn refuses_invalid_texts() {
    let files = files("n_");
    assert_eq!(files.len(), 188);
    let mut doc = Document::new();
    for (name, text) in files {
        doc.reset();
        let length = text.len();
        let error = doc.parse(text).expect_err(&name);
        assert!(error.offset <= length, "{name}: {error}");
    }
}

#[test]
fn follows_the_table_of_choices() {
    let files = files("i_");
    assert_eq!(files.len(), CHOICES.len());
    let mut doc = Document::new();
    for (name, text) in files {
        let (_, expected) = CHOICES.iter().find(|(listed, _)| *listed == name).expect(&name);
        assert_eq!(doc.parse(text).err().map(|error| error.kind), *expected, "{name}");
    }
}
