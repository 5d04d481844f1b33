//! The command line of xtask.

/// How long a soak or one fuzz target runs if nobody says otherwise.
const SECONDS_DEFAULT: u32 = 60;

pub(crate) const HELP: &str = "\
Usage: cargo xtask COMMAND

  test [--filter NAME]            every test: cargo's, then the end-to-end suites in JavaScript.
                                  With a filter: those whose name contains NAME; none is a failure
  soak NAME [--seconds N]         one long run (default 60 s)
  fuzz [TARGET] [--seconds N]     one fuzz target or all (default 60 s each)
  docs [--write]                  checks the pages that are generated from code, or writes them
  licences                        checks the licences of all dependencies against deny.toml";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Test { filter: Option<String> },
    Soak { name: String, seconds: u32 },
    Fuzz { target: Option<String>, seconds: u32 },
    Docs { write: bool },
    Licences,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut words = Vec::new();
    let mut filter = None;
    let mut seconds = None;
    let mut write = false;
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
            "--write" => write = true,
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
    if filter.is_some() && name != "test" {
        return misplaced("--filter");
    }
    if seconds.is_some() && name != "soak" && name != "fuzz" {
        return misplaced("--seconds");
    }
    if write && name != "docs" {
        return misplaced("--write");
    }
    let seconds = seconds.unwrap_or(SECONDS_DEFAULT);
    match (name.as_str(), operand) {
        ("help", None) => Ok(Command::Help),
        ("test", None) => Ok(Command::Test { filter }),
        ("test", Some(word)) => Err(format!("did you mean `test --filter {word}`?")),
        ("soak", Some(name)) => Ok(Command::Soak { name, seconds }),
        ("soak", None) => Err("soak needs the name of a run".to_owned()),
        ("fuzz", target) => Ok(Command::Fuzz { target, seconds }),
        ("docs", None) => Ok(Command::Docs { write }),
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

    #[test]
    fn commands_are_read_with_their_options() {
        for (line, expected) in [
            ("", Command::Help),
            ("test --help", Command::Help),
            ("test", Command::Test { filter: None }),
            ("test --filter ping", Command::Test { filter: Some("ping".to_owned()) }),
            ("test --filter=a=b", Command::Test { filter: Some("a=b".to_owned()) }),
            ("soak live", Command::Soak { name: "live".to_owned(), seconds: 60 }),
            ("soak --seconds 5 live", Command::Soak { name: "live".to_owned(), seconds: 5 }),
            ("fuzz", Command::Fuzz { target: None, seconds: 60 }),
            ("fuzz sse --seconds=9", Command::Fuzz { target: Some("sse".to_owned()), seconds: 9 }),
            ("docs --write", Command::Docs { write: true }),
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
