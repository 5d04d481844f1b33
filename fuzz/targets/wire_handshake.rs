//! The opening handshake of a WebSocket with any bytes: the headers of a request for the server, a
//! response for the client. Nothing panics, a refusal has a status of HTTP, an accepted handshake
//! is well-formed, and a client reads the same however the response is cut.
//!
//! The first byte is the size of the pieces, the rest is one header a line, or the response.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::subprotocol::SUPPORTED;
use wire::websocket::handshake::{ClientHandshake, HandshakeError, Upgraded, accept};

fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else { return };
    serve(data);
    let whole = respond(&mut [data].into_iter());
    // The bytes after the head depend on the cut, and so do those after an error.
    let cut = respond(&mut data.chunks(usize::from(*size).max(1)));
    match (whole, cut) {
        (Ok(Some(whole)), Ok(Some(cut))) => {
            assert_eq!(whole.subprotocol, cut.subprotocol);
            assert!(whole.rest.starts_with(&cut.rest));
        }
        (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
        (whole, cut) => panic!("{whole:?} and {cut:?}"),
    }
});

fn serve(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let headers = text.lines().filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name, value.as_bytes()));
    match accept("GET", headers, &SUPPORTED) {
        Ok(accepted) => {
            let is_known = |name| SUPPORTED.contains(&name);
            assert!(accepted.subprotocol.is_none_or(is_known));
            let response = accepted.response();
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut parsed = httparse::Response::new(&mut headers);
            assert_eq!(parsed.parse(&response), Ok(httparse::Status::Complete(response.len())));
            assert_eq!(parsed.code, Some(101));
        }
        Err(rejection) => assert!((400..500).contains(&rejection.status())),
    }
}

fn respond(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Option<Upgraded>, HandshakeError> {
    // The key of the example in RFC 6455, section 1.3.
    let (mut client, _) =
        ClientHandshake::new("h", "/", *b"the sample nonce", &["graphql-ws"], &[])?;
    for piece in pieces {
        if let Some(upgraded) = client.receive(piece)? {
            return Ok(Some(upgraded));
        }
    }
    Ok(None)
}
