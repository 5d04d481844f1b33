//! The files of a request (GraphQL multipart request specification), and their way to the subgraph that takes them.
//!
//! In the variables a client's file is `null`. The router puts a marker in its place, a text that no client can guess.
//! Plans treat it as any other value, so that the one request whose variables contain the marker is the one that takes
//! the file: there the marker becomes `null` again, and the request becomes a form with the files behind it.
//!
//! A file is sent once. The memory of all files of a request is held until its operation has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use plan::{Fetch, FetchKind, Plan, SubgraphOperation, Variables};

use crate::{ErrorCode, FetchError, GraphqlError};

/// The files of one request.
pub struct Uploads {
    /// A text of random characters, which markers and boundaries contain.
    secret: Box<str>,
    files: Box<[UploadedFile]>,
    /// The share of the bound on memory that the files take; given back when it is dropped.
    _memory: Box<dyn Send + Sync>,
}

/// One file.
pub struct UploadedFile {
    /// The name of the file, as the client sent it.
    pub file_name: Option<Box<str>>,
    /// The media type that the client stated.
    pub content_type: Option<HeaderValue>,
    /// The content.
    pub content: Bytes,
    /// True once a request has taken the file.
    is_claimed: AtomicBool,
}

impl UploadedFile {
    /// Creates a file that no request has taken.
    pub fn new(
        file_name: Option<Box<str>>,
        content_type: Option<HeaderValue>,
        content: Bytes,
    ) -> Self {
        Self { file_name, content_type, content, is_claimed: AtomicBool::new(false) }
    }
}

/// A request body that is a form, in pieces that are sent one after the other.
#[derive(Clone, Debug)]
pub struct MultipartBody {
    /// The value of `content-type`.
    pub content_type: HeaderValue,
    /// The pieces.
    pub pieces: Vec<Bytes>,
}

impl Uploads {
    /// Creates the files of a request. `secret` are random characters, at least 16 bytes of them, that no client knows;
    /// `memory` is dropped with the files.
    pub fn new(secret: &str, files: Vec<UploadedFile>, memory: Box<dyn Send + Sync>) -> Self {
        Self { secret: secret.into(), files: files.into(), _memory: memory }
    }

    /// Returns the JSON text that stands for a file in variables.
    pub fn marker(secret: &str, file: usize) -> String {
        format!("\"upload:{secret}:{file}\"")
    }

    /// Checks that each file is sent to one subgraph, in one request, as far as the plan shows it.
    ///
    /// # Errors
    /// The operation publishes events, which carry no files, or two of its requests use a file.
    pub fn check_plan(&self, plan: &Plan, variables: &Variables) -> Result<(), GraphqlError> {
        let refuse = |message: String| Err(GraphqlError::new(ErrorCode::BadUserInput, message));
        let is_event =
            |it: &Fetch| matches!(it.kind, FetchKind::Publish(_) | FetchKind::Request(_));
        if plan.fetches.iter().any(is_event) {
            return refuse("an operation with files cannot have fields of event subgraphs".into());
        }
        for file in 0..self.files.len() {
            let marker = Self::marker(&self.secret, file);
            let has_file = |operation: &SubgraphOperation| {
                let mut values =
                    operation.variables.iter().filter_map(|(_, id)| variables.get(*id));
                values.any(|value| value.contains(&marker))
            };
            let operations = plan.fetches.iter().filter_map(|fetch| match &fetch.kind {
                FetchKind::Root { operation, .. }
                | FetchKind::RootBelow { operation, .. }
                | FetchKind::Entities { operation, .. } => Some(operation),
                FetchKind::Publish(_) | FetchKind::Request(_) => None,
            });
            if operations.filter(|operation| has_file(operation)).count() > 1 {
                return refuse(format!(
                    "the file number {file} of `map` is used by several requests to subgraphs, and can be sent once: \
                     use its variable in one field"
                ));
            }
        }
        Ok(())
    }

    /// Returns the form for a request with this JSON body, and takes its files; `None` if it has none.
    ///
    /// # Errors
    /// Another request has taken one of the files.
    pub fn claim(&self, body: &Bytes) -> Result<Option<MultipartBody>, FetchError> {
        let prefix = format!("\"upload:{}:", self.secret);
        let mut found = Vec::new();
        find_markers(body, prefix.as_bytes(), "", &mut found);
        if found.is_empty() {
            return Ok(None);
        }
        let mut operations = body.to_vec();
        let mut claimed: Vec<(usize, Vec<String>)> = Vec::new();
        for (number, path) in found {
            let Some(file) = self.files.get(number) else { continue };
            if let Some((_, paths)) = claimed.iter_mut().find(|(known, _)| *known == number) {
                paths.push(path);
                continue;
            }
            if file.is_claimed.swap(true, Ordering::Relaxed) {
                let reason = "a file of the client was sent in another request already";
                return Err(FetchError::Protocol(reason.into()));
            }
            operations =
                replace(&operations, Self::marker(&self.secret, number).as_bytes(), b"null");
            claimed.push((number, vec![path]));
        }
        Ok(Some(self.form(operations, &claimed)))
    }

    /// Returns the form with these operations and the files with the paths of their places.
    fn form(&self, operations: Vec<u8>, claimed: &[(usize, Vec<String>)]) -> MultipartBody {
        let boundary = format!("starling-{}", self.secret);
        let part = |name: &str, more: &str| {
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"{more}\r\n\r\n")
        };
        let mut head = part("operations", "").into_bytes();
        head.extend_from_slice(&operations);
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(part("map", "").as_bytes());
        head.push(b'{');
        for (index, (_, paths)) in claimed.iter().enumerate() {
            // Paths consist of names of GraphQL and numbers, which need no escapes.
            let separator = if index == 0 { "" } else { "," };
            let entry = format!("{separator}\"{index}\":[\"{}\"]", paths.join("\",\""));
            head.extend_from_slice(entry.as_bytes());
        }
        head.extend_from_slice(b"}\r\n");
        let mut pieces = Vec::with_capacity(1 + 2 * claimed.len());
        for (index, (number, _)) in claimed.iter().enumerate() {
            let file = &self.files[*number];
            let name = file.file_name.as_deref().unwrap_or("blob");
            let kind = file.content_type.as_ref().and_then(|it| it.to_str().ok());
            let kind = kind.unwrap_or("application/octet-stream");
            let more = format!("; filename=\"{}\"\r\ncontent-type: {kind}", escape(name));
            head.extend_from_slice(part(&index.to_string(), &more).as_bytes());
            pieces.push(Bytes::from(std::mem::take(&mut head)));
            pieces.push(file.content.clone());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        pieces.push(Bytes::from(head));
        let content_type = format!("multipart/form-data; boundary={boundary}");
        MultipartBody {
            // The boundary has hexadecimal digits only.
            content_type: HeaderValue::try_from(content_type)
                .unwrap_or(HeaderValue::from_static("multipart/form-data")),
            pieces,
        }
    }
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Uploads({} files)", self.files.len())
    }
}

/// Escapes the name of a file as browsers do (HTML standard, section 4.10.22.7).
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '"' => escaped.push_str("%22"),
            letter if letter.is_control() => escaped.push('_'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Adds the number and the path of each file whose marker is in a JSON text. Only values with a marker are entered, so
/// the depth is that of the variables of a request, which is bounded.
fn find_markers(text: &Bytes, prefix: &[u8], path: &str, found: &mut Vec<(usize, String)>) {
    if !contains(text, prefix) {
        return;
    }
    let mut children: Vec<(String, Bytes)> = Vec::new();
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    // A text that the router has written itself is valid.
    let _ = match text.first() {
        Some(b'{') => {
            astjson::outline_members(text, |name, value| children.push((step(&name), value)))
        }
        Some(b'[') => {
            let mut index = 0_usize;
            astjson::outline_elements(text, |value| {
                children.push((step(&index.to_string()), value));
                index += 1;
            })
        }
        _ => {
            let number = text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(b"\""));
            let number = number.and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
            found.extend(number.map(|number| (number, path.to_owned())));
            return;
        }
    };
    for (path, value) in children {
        find_markers(&value, prefix, &path, found);
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Replaces each occurrence of `part`.
fn replace(text: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(part) {
            result.extend_from_slice(by);
            at += part.len();
        } else {
            result.push(text[at]);
            at += 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn uploads() -> Uploads {
        let file = |name: &str, content: &'static str| {
            let kind = Some(HeaderValue::from_static("text/plain"));
            UploadedFile::new(Some(name.into()), kind, Bytes::from_static(content.as_bytes()))
        };
        let files = vec![file("a\".txt", "first"), file("b\r\n.txt", "second")];
        Uploads::new(SECRET, files, Box::new(()))
    }

    fn body(variables: &str) -> Bytes {
        let variables = variables.replace("$0", &Uploads::marker(SECRET, 0));
        let variables = variables.replace("$1", &Uploads::marker(SECRET, 1));
        Bytes::from(format!(r#"{{"query":"mutation","variables":{variables}}}"#))
    }

    fn text(form: &MultipartBody) -> String {
        String::from_utf8(form.pieces.concat()).unwrap().replace("\r\n", "\n")
    }

    #[test]
    fn a_request_with_files_becomes_a_form() {
        let form = uploads().claim(&body(r#"{"x":1,"in":{"files":[$1,$0]},"same":$1}"#));
        let form = form.unwrap().unwrap();
        assert_eq!(form.content_type, "multipart/form-data; boundary=starling-0123456789abcdef");
        assert_eq!(
            text(&form),
            r#"--starling-0123456789abcdef
content-disposition: form-data; name="operations"

{"query":"mutation","variables":{"x":1,"in":{"files":[null,null]},"same":null}}
--starling-0123456789abcdef
content-disposition: form-data; name="map"

{"0":["variables.in.files.0","variables.same"],"1":["variables.in.files.1"]}
--starling-0123456789abcdef
content-disposition: form-data; name="0"; filename="b__.txt"
content-type: text/plain

second
--starling-0123456789abcdef
content-disposition: form-data; name="1"; filename="a%22.txt"
content-type: text/plain

first
--starling-0123456789abcdef--
"#
        );
    }

    #[test]
    fn a_request_without_files_stays_as_it_is_and_a_file_is_sent_once() {
        let uploads = uploads();
        assert!(uploads.claim(&body(r#"{"x":"upload:guess:0"}"#)).unwrap().is_none());
        assert!(uploads.claim(&body(r#"{"x":$0}"#)).unwrap().is_some());
        assert!(uploads.claim(&body(r#"{"x":$0}"#)).is_err());
        assert!(uploads.claim(&body(r#"{"x":$1}"#)).unwrap().is_some());
    }
}
