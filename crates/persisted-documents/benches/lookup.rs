//! The cost of finding an operation: a request with the id of a document against a request with the text. Both end with
//! the text from which the preparer computes its key, which is the same for both.

use bytes::Bytes;
use divan::{Bencher, black_box};
use persisted_documents::{DocumentSet, PersistedDocument, TextHash};

fn main() {
    divan::main();
}

/// The sizes of texts in bytes.
const SIZES: [usize; 3] = [256, 2_048, 16_384];

/// The number of documents of a large application.
const DOCUMENTS: usize = 2_000;

fn document_text(number: usize, size: usize) -> String {
    let mut text = format!("query Q{number} {{\n");
    for field in 0.. {
        if text.len() >= size {
            break;
        }
        text.push_str(&format!("  field{field}(first: \"a\") {{ id }}\n"));
    }
    text.push('}');
    text
}

fn documents(size: usize) -> DocumentSet {
    let document = |number| {
        let text = document_text(number, size);
        PersistedDocument {
            id: TextHash::of(text.as_bytes()).to_string().into(),
            name: None,
            client: None,
            text: Bytes::from(text),
        }
    };
    DocumentSet::new((0..DOCUMENTS).map(document).collect(), true).expect("distinct texts")
}

/// The members `query` and `documentId` of a body, as the router reads them.
fn member(body: &Bytes, name: &str) -> Box<str> {
    let mut found = None;
    let read = astjson::outline_members(body, |key, value| {
        if key == name {
            found = Some(value);
        }
    });
    read.expect("JSON");
    let mut document = astjson::Document::new();
    let value = document.parse(found.expect("the member")).expect("JSON");
    document.as_str(value).expect("a text").into()
}

/// A request with the text: its body is parsed, and the text is unescaped.
#[divan::bench(args = SIZES)]
fn text(bencher: Bencher<'_, '_>, size: usize) {
    let mut body = br#"{"query":"#.to_vec();
    astjson::print_string(&document_text(7, size), &mut body);
    body.extend_from_slice(b"}");
    let body = Bytes::from(body);
    bencher.bench(|| Bytes::from(String::from(member(black_box(&body), "query"))));
}

/// A request with the id: its body is parsed, and the document is looked up.
#[divan::bench(args = SIZES)]
fn id(bencher: Bencher<'_, '_>, size: usize) {
    let set = documents(size);
    let id = TextHash::of(document_text(7, size).as_bytes());
    let body = Bytes::from(format!(r#"{{"documentId":"sha256:{id}"}}"#));
    bencher.bench(|| {
        let id = member(black_box(&body), "documentId");
        set.find(&id, None).expect("a document").text.clone()
    });
}

/// The check of a text where only known texts run.
#[divan::bench(args = SIZES)]
fn known_text(bencher: Bencher<'_, '_>, size: usize) {
    let (set, text) = (documents(size), document_text(7, size));
    bencher.bench(|| set.find_text(black_box(text.as_bytes()), None).is_some());
}

/// The check of a text that differs in white space.
#[divan::bench(args = SIZES)]
fn similar_text(bencher: Bencher<'_, '_>, size: usize) {
    let (set, text) = (documents(size), document_text(7, size).replace('\n', " "));
    bencher.bench(|| set.find_similar_text(black_box(text.as_bytes()), None).is_some());
}
