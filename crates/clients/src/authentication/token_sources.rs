//! The places in which clients send their tokens, in order: headers, cookies, and members of the payload of
//! `connection_init`. A subgraph never gets a token that the router has not verified: the content of all places but the
//! one that counts is removed.

use std::borrow::Cow;

use config::{Jwt, JwtHeader, TokenPlace};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::TokenRefusal;

/// The places in which clients send their tokens.
#[derive(Debug)]
pub struct TokenSources {
    places: Box<[TokenPlace]>,
    init_payload: Box<[String]>,
    /// The value of `vary` for responses that caches may store.
    vary: HeaderValue,
}

/// The index of a place of tokens in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceId(usize);

/// A token that has not been verified, and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundToken<'a> {
    pub(super) text: &'a str,
    pub(super) place: PlaceId,
}

impl TokenSources {
    /// Returns the configured places.
    pub fn new(settings: &Jwt) -> Self {
        let places = settings.places().into_boxed_slice();
        let mut names: Vec<_> = places.iter().map(header_of).collect();
        names.dedup();
        let names: Vec<_> = names.into_iter().map(HeaderName::as_str).collect();
        // Names of headers are always valid values.
        let vary = HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static("*"));
        Self { places, init_payload: settings.init_payload.clone().into(), vary }
    }

    /// Returns the names of the headers that identify clients, as a value of `vary`.
    pub fn vary(&self) -> &HeaderValue {
        &self.vary
    }

    /// True if the request has a header that may contain a token.
    pub fn has_token(&self, headers: &HeaderMap) -> bool {
        self.places.iter().any(|place| headers.contains_key(header_of(place)))
    }

    /// Returns the paths of members in the payload of `connection_init`.
    pub fn init_payload(&self) -> &[String] {
        &self.init_payload
    }

    /// Returns the headers with tokens, in order.
    pub fn headers(&self) -> impl Iterator<Item = (PlaceId, &JwtHeader)> {
        self.places.iter().enumerate().filter_map(|(number, place)| match place {
            TokenPlace::Header(header) => Some((PlaceId(number), header)),
            TokenPlace::Cookie(_) => None,
        })
    }

    /// True if a header with this name contains tokens.
    pub fn is_token_header(&self, name: &HeaderName) -> bool {
        self.headers().any(|(_, header)| header.name == name)
    }

    /// Returns a token without its prefix, which is that of one of the headers.
    pub fn without_prefix<'a>(&self, text: &'a str) -> &'a str {
        let mut found = self.headers().filter(|(_, header)| !header.prefix.is_empty());
        found
            .find_map(|(_, header)| after_prefix(text, &header.prefix))
            .unwrap_or_else(|| text.trim())
    }

    /// True if there is more than one place, so that one of them can contain a text that is not verified.
    pub(super) fn has_several(&self) -> bool {
        self.places.len() > 1
    }

    /// Returns the token in the first place that the request uses.
    ///
    /// # Errors
    /// The place has several tokens, or contains something else.
    // hot path: once per request. One look-up in the headers where one header is configured.
    pub(super) fn find<'a>(
        &self,
        headers: &'a HeaderMap,
    ) -> Result<Option<FoundToken<'a>>, TokenRefusal> {
        for (number, place) in self.places.iter().enumerate() {
            let found = match place {
                TokenPlace::Header(header) => token_of_header(header, headers)?,
                TokenPlace::Cookie(cookie) => token_of_cookie(&cookie.name, headers)?,
            };
            if let Some(text) = found {
                return Ok(Some(FoundToken { text, place: PlaceId(number) }));
            }
        }
        Ok(None)
    }

    /// Removes the tokens of all places but `kept`.
    pub(super) fn keep_only(&self, kept: Option<PlaceId>, headers: &mut HeaderMap) {
        for (number, place) in self.places.iter().enumerate() {
            match place {
                _ if kept == Some(PlaceId(number)) => {}
                TokenPlace::Header(header) => drop(headers.remove(&header.name)),
                TokenPlace::Cookie(cookie) => remove_cookie(&cookie.name, headers),
            }
        }
    }

    /// Returns the header of a verified token at `place`; `None` if that is no header.
    pub(super) fn header_value(
        &self,
        place: PlaceId,
        token: &str,
    ) -> Option<(HeaderName, HeaderValue)> {
        let TokenPlace::Header(header) = self.places.get(place.0)? else { return None };
        let value = match header.prefix.is_empty() {
            true => HeaderValue::try_from(token),
            false => HeaderValue::try_from(format!("{} {token}", header.prefix)),
        };
        // A verified token consists of visible ASCII characters, so it is always a valid value.
        let mut value = value.ok()?;
        value.set_sensitive(true);
        Some((header.name.clone(), value))
    }
}

/// Returns the header that contains the tokens of a place.
fn header_of(place: &TokenPlace) -> &HeaderName {
    match place {
        TokenPlace::Header(header) => &header.name,
        TokenPlace::Cookie(_) => &COOKIE,
    }
}

fn token_of_header<'a>(
    header: &JwtHeader,
    headers: &'a HeaderMap,
) -> Result<Option<&'a str>, TokenRefusal> {
    let mut values = headers.get_all(&header.name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        // A proxy may have checked the other header.
        return Err(TokenRefusal::Unreadable("there are several headers with a token".into()));
    }
    let token = value.to_str().ok().and_then(|value| after_prefix(value, &header.prefix));
    token.filter(|it| !it.is_empty()).map(Some).ok_or_else(|| malformed_header(header))
}

/// Returns the refusal of a token header that contains something else.
fn malformed_header(header: &JwtHeader) -> TokenRefusal {
    let JwtHeader { name, prefix } = header;
    TokenRefusal::Unreadable(match prefix.is_empty() {
        true => format!("the header {name} contains no token").into(),
        false => format!("the header {name} must have the form: {prefix} TOKEN").into(),
    })
}

/// Returns the text behind the prefix, which is a word of its own in any letter case (RFC 9110, section 11.1).
fn after_prefix<'a>(value: &'a str, prefix: &str) -> Option<&'a str> {
    if prefix.is_empty() {
        return Some(value.trim());
    }
    let (word, rest) = value.split_once(' ')?;
    word.eq_ignore_ascii_case(prefix).then(|| rest.trim())
}

/// Returns the value of a cookie. One without a value counts as absent: so it looks after a sign-out.
fn token_of_cookie<'a>(
    name: &str,
    headers: &'a HeaderMap,
) -> Result<Option<&'a str>, TokenRefusal> {
    let refuse = |reason: String| TokenRefusal::Unreadable(Cow::Owned(reason));
    let mut values = headers.get_all(COOKIE).iter().flat_map(|value| cookies(value.as_bytes()));
    let mut values = values.by_ref().filter(|(known, _, _)| *known == name.as_bytes());
    let Some((_, value, _)) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        // A page of another subdomain can add a cookie of this name, and browsers send both.
        return Err(refuse(format!("there are several cookies {name}")));
    }
    let value = value.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(value);
    match std::str::from_utf8(value) {
        Ok("") => Ok(None),
        Ok(token) => Ok(Some(token)),
        Err(_) => Err(refuse(format!("the cookie {name} contains no token"))),
    }
}

/// Returns the cookies of a header: name, value, and both as they were sent (RFC 6265, section 4.2.1).
fn cookies(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    header.split(|byte| *byte == b';').filter_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..at].trim_ascii_end(), pair[at + 1..].trim_ascii_start(), pair))
    })
}

fn remove_cookie(name: &str, headers: &mut HeaderMap) {
    let is_it = |cookie: &(&[u8], &[u8], &[u8])| cookie.0 == name.as_bytes();
    let mut all = headers.get_all(COOKIE).iter();
    if !all.any(|value| cookies(value.as_bytes()).any(|it| is_it(&it))) {
        return;
    }
    let all = headers.get_all(COOKIE).iter();
    let rest: Vec<_> = all
        .filter_map(|value| {
            let kept = cookies(value.as_bytes()).filter(|it| !is_it(it)).map(|(_, _, pair)| pair);
            let kept = kept.collect::<Vec<_>>().join(&b"; "[..]);
            // A part of a valid value is a valid value.
            HeaderValue::from_bytes(&kept).ok().filter(|it| !it.is_empty())
        })
        .collect();
    headers.remove(COOKIE);
    for value in rest {
        headers.append(COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TokenCookie;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn several() -> TokenSources {
        let header = |name, prefix: &str| {
            let name = HeaderName::from_static(name);
            TokenPlace::Header(JwtHeader { name, prefix: prefix.into() })
        };
        let cookie = TokenPlace::Cookie(TokenCookie { name: "session".into() });
        let sources = vec![header("authorization", "Bearer"), header("x-token", ""), cookie];
        TokenSources::new(&Jwt { sources, ..Jwt::default() })
    }

    #[test]
    fn the_prefix_is_a_word_of_its_own() {
        for (value, prefix, expected) in [
            ("Bearer abc", "Bearer", Some("abc")),
            ("bearer  abc ", "Bearer", Some("abc")),
            ("Bearerabc", "Bearer", None),
            ("Bearer", "Bearer", None),
            ("Basic abc", "Bearer", None),
            (" abc", "", Some("abc")),
        ] {
            assert_eq!(after_prefix(value, prefix), expected, "{value}");
        }
    }

    #[test]
    fn a_token_is_in_one_header_of_the_right_scheme() {
        let sources = TokenSources::new(&Jwt::default());
        let token = |values: &[&'static str]| {
            let pairs: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            sources.find(&headers(&pairs)).map(|it| it.map(|it| it.text.to_owned()))
        };
        assert_eq!(token(&[]), Ok(None));
        assert_eq!(token(&["Bearer abc"]), Ok(Some("abc".to_owned())));
        let reason = |values: &[&'static str]| token(values).unwrap_err().to_string();
        let several = "there are several headers with a token";
        assert_eq!(reason(&["Bearer abc", "Bearer abc"]), several);
        for other in ["Basic abc", "Bearer ", "", "abc.def.ghi"] {
            let form = "the header authorization must have the form: Bearer TOKEN";
            assert_eq!(reason(&[other]), form, "{other}");
        }
    }

    #[test]
    fn the_first_place_that_a_request_uses_counts() {
        for (pairs, expected) in [
            (&[][..], Ok(None)),
            (&[("cookie", "session=c")], Ok(Some(("c", 2)))),
            (&[("cookie", "session=c"), ("x-token", "b")], Ok(Some(("b", 1)))),
            (
                &[("cookie", "session=c"), ("x-token", "b"), ("authorization", "Bearer a")],
                Ok(Some(("a", 0))),
            ),
            // A place that contains something else is not skipped.
            (&[("cookie", "session=c"), ("authorization", "Basic a")], Err(())),
        ] {
            let headers = headers(pairs);
            let found = several().find(&headers).map_err(drop);
            let found = found.map(|it| it.map(|it| (it.text.to_owned(), it.place.0)));
            assert_eq!(found, expected.map(|it| it.map(|(a, b)| (a.to_owned(), b))), "{pairs:?}");
        }
    }

    #[test]
    fn a_cookie_is_found_by_its_exact_name_and_must_be_the_only_one() {
        for (values, expected) in [
            (&["a=1; session=abc; b=2"][..], Ok(Some("abc"))),
            (&["a=1", "session=abc"], Ok(Some("abc"))),
            (&["session=\"abc\""], Ok(Some("abc"))),
            (&["session=a=b="], Ok(Some("a=b="))),
            (&["session="], Ok(None)),
            (&["session"], Ok(None)),
            (&["Session=abc; xsession=abc; session2=abc"], Ok(None)),
            (&["a=session=abc"], Ok(None)),
            (&["session=abc; session=def"], Err("there are several cookies session")),
            (&["session=abc", "session=abc"], Err("there are several cookies session")),
        ] {
            let pairs: Vec<_> = values.iter().map(|value| ("cookie", *value)).collect();
            let headers = headers(&pairs);
            let found = several().find(&headers).map(|it| it.map(|it| it.text));
            assert_eq!(found.map_err(|it| it.to_string()), expected.map_err(str::to_owned));
        }
        let mut binary = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"session=\xff").expect("a value");
        binary.append(COOKIE, value);
        assert!(several().find(&binary).is_err());
    }

    #[test]
    fn tokens_of_other_places_are_removed_and_nothing_else() {
        let all = [
            ("authorization", "Bearer a"),
            ("x-token", "b"),
            ("cookie", "a=1; session=c;b=2"),
            ("cookie", "session=d"),
            ("cookie", "c=3"),
            ("x-other", "e"),
        ];
        for (kept, expected) in [
            (
                Some(PlaceId(0)),
                &[
                    ("authorization", "Bearer a"),
                    ("x-other", "e"),
                    ("cookie", "a=1; b=2"),
                    ("cookie", "c=3"),
                ][..],
            ),
            (None, &[("x-other", "e"), ("cookie", "a=1; b=2"), ("cookie", "c=3")]),
            (
                Some(PlaceId(2)),
                &[
                    ("cookie", "a=1; session=c;b=2"),
                    ("cookie", "session=d"),
                    ("cookie", "c=3"),
                    ("x-other", "e"),
                ],
            ),
        ] {
            let mut rest = headers(&all);
            several().keep_only(kept, &mut rest);
            assert_eq!(rest, headers(expected), "{kept:?}");
        }
    }

    #[test]
    fn responses_vary_by_every_place() {
        assert_eq!(several().vary(), "authorization, x-token, cookie");
        assert_eq!(TokenSources::new(&Jwt::default()).vary(), "authorization");
    }
}
