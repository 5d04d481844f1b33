//! Commands and scripts. A command knows which of its arguments are keys, so that the store can add its namespace and
//! find the server.

use redis::Cmd;
use redis_connection::slot_of;
use sha1::{Digest, Sha1};

/// A command for a store.
#[derive(Clone, Debug)]
pub struct Command {
    start: CommandStart,
    arguments: Vec<Argument>,
}

#[derive(Clone, Copy, Debug)]
enum CommandStart {
    Name(&'static str),
    Script(&'static Script, usize),
}

#[derive(Clone, Debug)]
enum Argument {
    /// Gets the namespace of the store.
    Key(Box<str>),
    Value(Vec<u8>),
}

/// A script in Lua. The servers keep it after it has run once, and know it by its hash.
#[derive(Debug)]
pub struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    /// Creates a script. It must get all of its keys as `KEYS`.
    pub fn new(text: &'static str) -> Self {
        let digest = Sha1::digest(text.as_bytes());
        Self { text, hash: digest.iter().map(|byte| format!("{byte:02x}")).collect() }
    }
}

impl Command {
    /// Creates a command without arguments.
    pub fn new(name: &'static str) -> Self {
        Self { start: CommandStart::Name(name), arguments: Vec::new() }
    }

    /// Creates a call of a script with these keys. Arguments are added by [`Command::value`]. In a cluster all keys
    /// must have the same slot.
    pub fn script<K: Into<Box<str>>>(
        script: &'static Script,
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        let arguments: Vec<_> = keys.into_iter().map(|key| Argument::Key(key.into())).collect();
        Self { start: CommandStart::Script(script, arguments.len()), arguments }
    }

    /// Adds a key. The store puts its namespace before it.
    pub fn key(mut self, key: impl Into<Box<str>>) -> Self {
        self.arguments.push(Argument::Key(key.into()));
        self
    }

    /// Adds any other argument.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(Argument::Value(value.into()));
        self
    }

    /// Adds a number.
    pub fn number(self, number: u64) -> Self {
        self.value(number.to_string())
    }

    /// Returns the command for the client library. A script is sent as its hash, or as its text.
    pub(crate) fn encode(&self, namespace: &str, with_text: bool) -> Cmd {
        let mut command = match self.start {
            CommandStart::Name(name) => redis::cmd(name),
            CommandStart::Script(script, keys) => {
                let mut command = redis::cmd(if with_text { "EVAL" } else { "EVALSHA" });
                command.arg(if with_text { script.text } else { script.hash.as_str() }).arg(keys);
                command
            }
        };
        for argument in &self.arguments {
            match argument {
                Argument::Key(key) => command.arg(format!("{namespace}{key}")),
                Argument::Value(value) => command.arg(&value[..]),
            };
        }
        command
    }

    /// Returns the slot of the keys in a cluster; `None` if the command has no key.
    ///
    /// # Errors
    /// The keys have different slots.
    pub(crate) fn slot(&self, namespace: &str) -> Result<Option<u16>, DifferentSlots> {
        let mut slot = None;
        for argument in &self.arguments {
            let Argument::Key(key) = argument else { continue };
            let own = slot_of(&format!("{namespace}{key}"));
            if slot.is_some_and(|slot| slot != own) {
                return Err(DifferentSlots);
            }
            slot = Some(own);
        }
        Ok(slot)
    }
}

/// The keys of a command have different slots.
#[derive(Debug)]
pub(crate) struct DifferentSlots;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new("return 1"));

    fn words(command: &Cmd) -> Vec<String> {
        let text = String::from_utf8(command.get_packed_command()).expect("a text");
        text.split("\r\n")
            .filter(|it| !it.is_empty() && !it.starts_with(['*', '$']))
            .map(Into::into)
            .collect()
    }

    #[test]
    fn every_key_has_the_namespace_and_no_value_does() {
        let command = Command::new("SET").key("a").value("v").value("PX").number(7);
        assert_eq!(words(&command.encode("ns:", false)), ["SET", "ns:a", "v", "PX", "7"]);
        let script = Command::script(&SCRIPT, ["a", "b"]).number(3);
        let hash = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(
            words(&script.encode("ns:", false)),
            ["EVALSHA", hash, "2", "ns:a", "ns:b", "3"]
        );
        let text = words(&script.encode("ns:", true));
        assert_eq!(text, ["EVAL", "return 1", "2", "ns:a", "ns:b", "3"]);
    }

    #[test]
    fn keys_of_one_command_must_have_one_slot() {
        let slot = |keys: &[&str]| {
            let command = keys.iter().fold(Command::new("DEL"), |it, key| it.key(*key));
            command.slot("ns:").map_err(|_| ())
        };
        assert_eq!(slot(&[]), Ok(None));
        assert_eq!(slot(&["{t}a", "{t}b"]), Ok(Some(slot_of("t"))));
        assert_eq!(slot(&["a", "b"]), Err(()));
    }
}
