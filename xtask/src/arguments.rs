//! The command line of xtask.

use crate::bench;

/// How long a soak or one fuzz target runs if nobody says otherwise.
const SECONDS_DEFAULT: u32 = 60;

/// Default duration of the long soaks. Memory has to be flat after the first minute, for a while. The soak `resume`
/// needs about half a minute for each of its scenarios, and percentiles of the soak `hostile` rest on more requests.
const LONG_SOAK_SECONDS_DEFAULT: u32 = 600;

pub(crate) const HELP: &str = "\
Usage: cargo xtask COMMAND

  test [--filter NAME]            every test: cargo's, then the end-to-end suites in JavaScript.
                                  With a filter: those whose name contains NAME; none is a failure
  bench NAME [--seconds N] [--pairs N] [--clients N] [--filter NAME] [--provider NAME] [--router NAME]
                                  measures a release build: router, rate, sizes,
                                  subscriptions or events
  soak NAME [--seconds N] [--subscribers N] [--busy]
                                  one long run: live or reloads (default 60 s), queries, churn, resume or
                                  hostile (default 600 s); --subscribers N for reloads (default 5,000);
                                  --busy for resume: keeps all cores busy meanwhile
  fuzz [TARGET] [--seconds N]     one fuzz target or all (default 60 s each)
  sanitize                        the tests of crates with `unsafe` under Miri and AddressSanitizer
  docs [--write]                  checks the pages that are generated from code, or writes them
  h2spec                          HTTP/2 by the book: 145 cases against the router
  licences                        checks the licences of all dependencies against deny.toml";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test { filter: Option<String> },
    Bench { name: String, options: bench::Options },
    Soak { name: String, seconds: u32, subscribers: Option<u32>, busy: bool },
    Fuzz { target: Option<String>, seconds: u32 },
    Sanitize,
    Docs { write: bool },
    H2spec,
    Licences,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut words = Vec::new();
    let mut filter = None;
    let mut seconds = None;
    let mut pairs = None;
    let mut clients = None;
    let mut provider = None;
    let mut subscribers = None;
    let mut router = None;
    let mut write = false;
    let mut busy = false;
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => {
                (flag.to_owned(), Some(value.to_owned()))
            }
            _ => (argument, None),
        };
        let mut value = |flag: &str| {
            inline.clone().or_else(|| arguments.next()).ok_or(format!("{flag} needs a value"))
        };
        match flag.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--filter" => {
                let name = value("--filter")?;
                if name.is_empty() {
                    return Err("--filter is empty; leave it out to run every test".to_owned());
                }
                filter = Some(name);
            }
            "--seconds" => {
                let text = value("--seconds")?;
                let number = text.parse::<u32>().ok().filter(|number| *number > 0);
                seconds = Some(number.ok_or(format!(
                    "--seconds is `{text}`; write a whole number of seconds, at least 1"
                ))?);
            }
            "--pairs" | "--clients" => {
                let text = value(&flag)?;
                let number = text.parse::<u32>().ok().filter(|number| *number > 0);
                let number = number
                    .ok_or(format!("{flag} is `{text}`; write a whole number, at least 1"))?;
                *(if flag == "--pairs" { &mut pairs } else { &mut clients }) = Some(number);
            }
            "--provider" => provider = Some(value("--provider")?),
            "--subscribers" => {
                let text = value("--subscribers")?;
                let number = text.parse::<u32>().ok().filter(|number| *number > 0);
                subscribers = Some(number.ok_or(format!(
                    "--subscribers is `{text}`; write a whole number, at least 1"
                ))?);
            }
            "--router" => router = Some(value("--router")?),
            "--write" => write = true,
            "--busy" => busy = true,
            other if other.starts_with('-') => return Err(format!("unknown option `{other}`")),
            _ => words.push(flag),
        }
    }

    let mut words = words.into_iter();
    let name = words.next().unwrap_or_else(|| "help".to_owned());
    let operand = words.next();
    if let Some(extra) = words.next() {
        return Err(format!("`{extra}` is one argument too many"));
    }
    let misplaced = |flag: &str| Err(format!("{flag} does not belong to `{name}`"));
    if filter.is_some() && name != "test" && name != "bench" {
        return misplaced("--filter");
    }
    if seconds.is_some() && name != "soak" && name != "fuzz" && name != "bench" {
        return misplaced("--seconds");
    }
    if subscribers.is_some() && (name.as_str(), operand.as_deref()) != ("soak", Some("reloads")) {
        return misplaced("--subscribers");
    }
    if busy && (name.as_str(), operand.as_deref()) != ("soak", Some("resume")) {
        return misplaced("--busy");
    }
    for (flag, is_given) in [
        ("--pairs", pairs.is_some()),
        ("--clients", clients.is_some()),
        ("--provider", provider.is_some()),
        ("--router", router.is_some()),
    ] {
        if is_given && name != "bench" {
            return misplaced(flag);
        }
    }
    if write && name != "docs" {
        return misplaced("--write");
    }
    if name == "bench" {
        let name =
            operand.ok_or("bench needs a name: router, rate, sizes, subscriptions or events")?;
        let options = bench::Options { seconds, pairs, clients, filter, provider, router };
        return Ok(Command::Bench { name, options });
    }
    let default = match operand.as_deref() {
        Some("queries" | "churn" | "resume" | "hostile") if name == "soak" => {
            LONG_SOAK_SECONDS_DEFAULT
        }
        _ => SECONDS_DEFAULT,
    };
    let seconds = seconds.unwrap_or(default);
    match (name.as_str(), operand) {
        ("help", None) => Ok(Command::Help),
        ("test", None) => Ok(Command::Test { filter }),
        ("test", Some(word)) => Err(format!("did you mean `test --filter {word}`?")),
        ("soak", Some(name)) => Ok(Command::Soak { name, seconds, subscribers, busy }),
        ("soak", None) => Err("soak needs the name of a run".to_owned()),
        ("fuzz", target) => Ok(Command::Fuzz { target, seconds }),
        ("sanitize", None) => Ok(Command::Sanitize),
        ("docs", None) => Ok(Command::Docs { write }),
        ("h2spec", None) => Ok(Command::H2spec),
        ("licences", None) => Ok(Command::Licences),
        (_, Some(word)) => Err(format!("`{word}` is one argument too many")),
        (other, None) => Err(format!("unknown command `{other}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn soak(name: &str, seconds: u32, subscribers: Option<u32>) -> Command {
        Command::Soak { name: name.to_owned(), seconds, subscribers, busy: false }
    }

    fn soak_resume(seconds: u32, busy: bool) -> Command {
        Command::Soak { name: "resume".to_owned(), seconds, subscribers: None, busy }
    }

    #[test]
    fn commands_are_read_with_their_options() {
        for (line, expected) in [
            ("", Command::Help),
            ("test --help", Command::Help),
            ("test", Command::Test { filter: None }),
            ("test --filter ping", Command::Test { filter: Some("ping".to_owned()) }),
            ("test --filter=a=b", Command::Test { filter: Some("a=b".to_owned()) }),
            ("soak live", soak("live", 60, None)),
            ("soak queries", soak("queries", 600, None)),
            ("soak churn", soak("churn", 600, None)),
            ("soak --seconds 5 live", soak("live", 5, None)),
            ("soak reloads", soak("reloads", 60, None)),
            ("soak resume", soak_resume(600, false)),
            ("soak hostile", soak("hostile", 600, None)),
            ("soak resume --busy --seconds 90", soak_resume(90, true)),
            ("soak reloads --subscribers=9 --seconds 90", soak("reloads", 90, Some(9))),
            (
                "bench router --pairs 3 --seconds=2 --filter share --router other",
                Command::Bench {
                    name: "router".to_owned(),
                    options: bench::Options {
                        seconds: Some(2),
                        pairs: Some(3),
                        filter: Some("share".to_owned()),
                        router: Some("other".to_owned()),
                        ..bench::Options::default()
                    },
                },
            ),
            (
                "bench events --provider nats --clients=10",
                Command::Bench {
                    name: "events".to_owned(),
                    options: bench::Options {
                        clients: Some(10),
                        provider: Some("nats".to_owned()),
                        ..bench::Options::default()
                    },
                },
            ),
            ("fuzz", Command::Fuzz { target: None, seconds: 60 }),
            ("fuzz sse --seconds=9", Command::Fuzz { target: Some("sse".to_owned()), seconds: 9 }),
            ("docs --write", Command::Docs { write: true }),
            ("h2spec", Command::H2spec),
            ("sanitize", Command::Sanitize),
            ("licences", Command::Licences),
        ] {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_wrong_call_is_told_what_is_wrong() {
        for (line, expected) in [
            ("tset", "unknown command `tset`"),
            ("test ping", "did you mean `test --filter ping`?"),
            ("test --filter", "--filter needs a value"),
            ("test --filter=", "--filter is empty; leave it out to run every test"),
            ("test --seconds 3", "--seconds does not belong to `test`"),
            ("bench", "bench needs a name: router, rate, sizes, subscriptions or events"),
            ("test --provider nats", "--provider does not belong to `test`"),
            ("bench events --clients x", "--clients is `x`; write a whole number, at least 1"),
            ("test --pairs 3", "--pairs does not belong to `test`"),
            ("soak live --busy", "--busy does not belong to `soak`"),
            ("test --busy", "--busy does not belong to `test`"),
            ("soak live --subscribers 3", "--subscribers does not belong to `soak`"),
            (
                "soak reloads --subscribers 0",
                "--subscribers is `0`; write a whole number, at least 1",
            ),
            ("soak", "soak needs the name of a run"),
            ("soak a b", "`b` is one argument too many"),
            ("fuzz --seconds 0", "--seconds is `0`; write a whole number of seconds, at least 1"),
            ("docs --wriet", "unknown option `--wriet`"),
            ("licences now", "`now` is one argument too many"),
        ] {
            assert_eq!(parsed(line), Err(expected.to_owned()), "{line}");
        }
    }
}
