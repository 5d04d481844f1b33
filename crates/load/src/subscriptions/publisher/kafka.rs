//! As much of Kafka's protocol as publishing to one topic needs: a topic is made if it is not there, events go to its first
//! partition in batches, each of which is answered. [The protocol](https://kafka.apache.org/protocol) is spoken in versions that
//! brokers of 2.1 and later have, and that have no tagged fields.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::broker::Broker;
use super::now_us;

/// Kinds of requests, and their versions.
const PRODUCE: (i16, i16) = (0, 7);
const CREATE_TOPICS: (i16, i16) = (19, 2);

/// What we call ourselves.
const CLIENT: &str = "bench";

/// How long the broker may take for a request.
const TIMEOUT_MS: i32 = 10_000;

/// The broker has written it; replicas may follow.
const LEADER_ACKNOWLEDGES: i16 = 1;

/// `TOPIC_ALREADY_EXISTS`.
const EXISTS: i16 = 36;

/// `UNKNOWN_TOPIC_OR_PARTITION`, `LEADER_NOT_AVAILABLE`, `NOT_LEADER_OR_FOLLOWER`, `REQUEST_TIMED_OUT`, `NOT_CONTROLLER`: what a
/// broker says that has just begun, or of a topic that was just made.
const NOT_YET: [i16; 5] = [3, 5, 6, 7, 41];

/// How long it may go on to say so, and how often it is asked.
const NOT_YET_MAX: Duration = Duration::from_secs(10);
const NOT_YET_PAUSE: Duration = Duration::from_millis(50);

/// An answer of more is none to a request of ours.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A connection to the broker that has the topic's first partition.
pub(super) struct Kafka {
    stream: BufReader<TcpStream>,
    topic: String,
    /// Records that were added, and how many.
    records: Vec<u8>,
    count: i32,
    record: Vec<u8>,
}

impl Kafka {
    pub(super) fn open(stream: BufReader<TcpStream>, topic: String) -> io::Result<Self> {
        let mut kafka = Self { stream, topic, records: Vec::new(), count: 0, record: Vec::new() };
        kafka.create_topic()?;
        Ok(kafka)
    }

    fn create_topic(&mut self) -> io::Result<()> {
        let mut body = Vec::new();
        put_count(&mut body, 1);
        put_text(&mut body, &self.topic);
        body.extend_from_slice(&1_i32.to_be_bytes());
        // As many replicas as one broker has.
        body.extend_from_slice(&1_i16.to_be_bytes());
        // Neither places of replicas nor settings.
        put_count(&mut body, 0);
        put_count(&mut body, 0);
        body.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
        // Not only to be checked.
        body.push(0);
        // Time that it was slowed down, number of topics, name of ours.
        self.insist(CREATE_TOPICS, &body, "make the topic", |answer| {
            answer.skip(8)?;
            answer.text()?;
            answer.number()
        })
    }

    /// Asks until it is done, or never will be; `code` finds the error code in an answer.
    fn insist(
        &mut self,
        request: (i16, i16),
        body: &[u8],
        what: &str,
        code: impl Fn(&mut Answer<'_>) -> io::Result<i16>,
    ) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let answer = self.ask(request, body)?;
            match code(&mut Answer(&answer))? {
                0 | EXISTS => return Ok(()),
                again if NOT_YET.contains(&again) && began.elapsed() < NOT_YET_MAX => {
                    std::thread::sleep(NOT_YET_PAUSE);
                }
                // Error codes stand in the protocol (https://kafka.apache.org/protocol#protocol_error_codes).
                code => {
                    return Err(io::Error::other(format!(
                        "Kafka did not {what}: error code {code}"
                    )));
                }
            }
        }
    }

    /// Asks something and answers with what follows the answer's number.
    fn ask(&mut self, (kind, version): (i16, i16), body: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = vec![0; 4];
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&version.to_be_bytes());
        // Answers come in the order of requests, and there is one at a time.
        request.extend_from_slice(&0_i32.to_be_bytes());
        put_text(&mut request, CLIENT);
        request.extend_from_slice(body);
        let length = length(request.len() - 4);
        request[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.get_mut().write_all(&request)?;
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = usize::try_from(i32::from_be_bytes(head)).unwrap_or(usize::MAX);
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(io::Error::other("this is not Kafka's protocol"));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        answer.drain(..4);
        Ok(answer)
    }
}

impl Broker for Kafka {
    fn add(&mut self, key: &str, event: &[u8]) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        // Attributes, and the time since that of the batch.
        record.extend_from_slice(&[0, 0]);
        put_varint(record, self.count.into());
        for bytes in [key.as_bytes(), event] {
            put_varint(record, length(bytes.len()).into());
            record.extend_from_slice(bytes);
        }
        // No headers.
        put_varint(record, 0);
        put_varint(&mut self.records, length(record.len()).into());
        self.records.extend_from_slice(record);
        self.count += 1;
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let batch = batch(self.count, &self.records);
        self.records.clear();
        self.count = 0;
        let mut body = Vec::with_capacity(batch.len() + 64);
        // No transaction.
        body.extend_from_slice(&(-1_i16).to_be_bytes());
        body.extend_from_slice(&LEADER_ACKNOWLEDGES.to_be_bytes());
        body.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
        put_count(&mut body, 1);
        put_text(&mut body, &self.topic);
        put_count(&mut body, 1);
        // The first partition.
        body.extend_from_slice(&0_i32.to_be_bytes());
        body.extend_from_slice(&length(batch.len()).to_be_bytes());
        body.extend_from_slice(&batch);
        // Number of topics, name of ours, number of partitions, number of ours.
        self.insist(PRODUCE, &body, "take events", |answer| {
            answer.skip(4)?;
            answer.text()?;
            answer.skip(8)?;
            answer.number()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// What is left of an answer.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn skip(&mut self, count: usize) -> io::Result<()> {
        self.0 = self.0.get(count..).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }

    fn number(&mut self) -> io::Result<i16> {
        let bytes = self.0.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = i16::from_be_bytes(*bytes);
        self.skip(2)?;
        Ok(number)
    }

    /// Skips a text.
    fn text(&mut self) -> io::Result<()> {
        let length = self.number()?;
        self.skip(usize::try_from(length).unwrap_or(0))
    }
}

/// Lengths here are those of events, which are far from the bound.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn put_count(into: &mut Vec<u8>, count: i32) {
    into.extend_from_slice(&count.to_be_bytes());
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    // Names of topics have at most 249 bytes, and ours is short.
    into.extend_from_slice(&i16::try_from(text.len()).unwrap_or(i16::MAX).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// Seven bits a byte, the sign in the lowest one.
fn put_varint(into: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

/// A batch of records: [the format](https://kafka.apache.org/documentation/#recordbatch).
fn batch(count: i32, records: &[u8]) -> Vec<u8> {
    let time_ms = i64::try_from(now_us() / 1000).unwrap_or(i64::MAX);
    let mut checked = Vec::with_capacity(records.len() + 64);
    // Attributes: no compression, times are ours.
    checked.extend_from_slice(&0_i16.to_be_bytes());
    checked.extend_from_slice(&(count - 1).to_be_bytes());
    checked.extend_from_slice(&time_ms.to_be_bytes());
    checked.extend_from_slice(&time_ms.to_be_bytes());
    // No producer id, epoch or sequence: it is not idempotent.
    checked.extend_from_slice(&[0xff; 8 + 2 + 4]);
    checked.extend_from_slice(&count.to_be_bytes());
    checked.extend_from_slice(records);
    let mut batch = Vec::with_capacity(checked.len() + 21);
    batch.extend_from_slice(&0_i64.to_be_bytes());
    // What follows: epoch of the leader, magic, checksum and the rest.
    batch.extend_from_slice(&length(checked.len() + 9).to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes());
    batch.push(2);
    batch.extend_from_slice(&crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

/// For eight bytes at a time: the checksum of a byte that so many zero bytes follow.
const CRC_TABLES: [[u32; 256]; 8] = crc_tables();

const fn crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            // The polynomial of Castagnoli, reversed.
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// CRC-32C (RFC 3720, appendix B.4), eight bytes at a time: an event of 64 kB has to be cheap here.
fn crc32c(bytes: &[u8]) -> u32 {
    let at = |table: usize, byte: u32| CRC_TABLES[table][(byte & 0xff) as usize];
    let mut crc = u32::MAX;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in chunks {
        let low = crc ^ u32::from_le_bytes([a, b, c, d]);
        let high = u32::from_le_bytes([e, f, g, h]);
        crc = at(7, low)
            ^ at(6, low >> 8)
            ^ at(5, low >> 16)
            ^ at(4, low >> 24)
            ^ at(3, high)
            ^ at(2, high >> 8)
            ^ at(1, high >> 16)
            ^ at(0, high >> 24);
    }
    for byte in rest {
        crc = (crc >> 8) ^ at(0, crc ^ u32::from(*byte));
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        for (bytes, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        for (number, expected) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (64, &[0x80, 1]),
            (300, &[0xd8, 4]),
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(bytes, expected, "{number}");
        }
    }

    #[test]
    fn a_batch_says_how_long_it_is() {
        let batch = batch(2, b"records");
        let length = i32::from_be_bytes(*batch[8..].first_chunk().unwrap());
        // Beside the first offset and the length itself.
        assert_eq!(length as usize, batch.len() - 12);
        assert_eq!(batch.len(), 61 + b"records".len());
    }
}
