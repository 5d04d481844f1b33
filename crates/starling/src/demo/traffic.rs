//! The flights in motion: a pure state that advances by one flight per tick and returns the events to publish.
//!
//! It uses no clock and no randomness: the same number of ticks always leads to the same board. The caller decides how
//! long a tick takes ([`TICK`] is a good choice) and where the events are published.

use std::time::Duration;

use serde_json::{Value, json};

use super::schedule::{FLIGHTS, ScheduledFlight};

/// A pace that readers can follow: four events a second, each flight every five seconds.
pub const TICK: Duration = Duration::from_millis(250);

/// The topic of every movement, which is also published to this topic followed by `.` and the flight's id.
pub const MOVED_TOPIC: &str = "flights.moved";

/// The topic to which the mutation `announceDelay` publishes; see [`Traffic::apply_delay`].
pub const DELAYS_TOPIC: &str = "flights.delays";

/// The maximum delay. Longer delays would be cancellations, which the demo does not have.
const DELAY_MINUTES_MAX: u16 = 600;

/// The minutes in the air that one movement represents.
const MINUTES_PER_MOVE: u16 = 10;

/// The minutes of delay that one turn at the gate represents.
const MINUTES_PER_GATE_TURN: u16 = 15;

/// The maximum number of turns at the gate for any delay, so that the board keeps moving.
const GATE_TURNS_MAX: u16 = 8;

/// The whole way, in the unit of [`FlightInMotion::progress`].
const PROGRESS_MAX: u16 = 1000;

/// The end of the climb and the begin of the descent, in the same unit.
const CLIMB_END: u16 = 150;
const DESCENT_START: u16 = 800;

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The topic at [`super::PROVIDER`].
    pub topic: String,
    /// A JSON object.
    pub payload: String,
}

/// All flights, and the index of the flight that moves next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    flights: Vec<FlightInMotion>,
    next_flight: usize,
}

/// The state of one flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightInMotion {
    /// The constant data of the flight.
    pub scheduled: ScheduledFlight,
    /// The minutes of delay announced for the next departure.
    pub delay_minutes: u16,
    phase: Phase,
    /// The flown part of the way, in thousandths.
    progress: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Scheduled,
    Delayed { turns_left: u16 },
    Boarding,
    Airborne,
    Landed,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// Creates a busy morning: most flights are in the air, some at their gates.
    pub fn new() -> Self {
        // Primes spread the flights over their ways; others would do as well.
        let spread = |index: usize| u16::try_from((index * 137 + 90) % 900).unwrap_or(0);
        let flights = FLIGHTS
            .iter()
            .enumerate()
            .map(|(index, scheduled)| {
                let (phase, progress) = match index % 10 {
                    5 => (Phase::Scheduled, 0),
                    7 => (Phase::Boarding, 0),
                    8 => (Phase::Landed, PROGRESS_MAX),
                    _ => (Phase::Airborne, spread(index)),
                };
                FlightInMotion { scheduled: *scheduled, delay_minutes: 0, phase, progress }
            })
            .collect();
        Self { flights, next_flight: 0 }
    }

    /// Moves the next flight by one step and returns its events: the same payload at two topics.
    pub fn tick(&mut self) -> Vec<Event> {
        let next_flight = self.next_flight % self.flights.len().max(1);
        self.next_flight = next_flight + 1;
        let Some(flight) = self.flights.get_mut(next_flight) else { return Vec::new() };
        flight.advance();
        let payload = flight.event().to_string();
        let flight_topic = format!("{MOVED_TOPIC}.{}", flight.scheduled.id);
        vec![
            Event { topic: MOVED_TOPIC.to_owned(), payload: payload.clone() },
            Event { topic: flight_topic, payload },
        ]
    }

    /// Returns a flight by its id.
    pub fn flight(&self, id: &str) -> Option<&FlightInMotion> {
        self.flights.iter().find(|flight| flight.scheduled.id == id)
    }

    /// Makes a flight wait before its next departure. False if there is no such flight.
    pub fn announce_delay(&mut self, id: &str, minutes: u16) -> bool {
        match self.flights.iter_mut().find(|flight| flight.scheduled.id == id) {
            Some(flight) => {
                flight.delay_minutes = minutes.min(DELAY_MINUTES_MAX);
                true
            }
            None => false,
        }
    }

    /// Applies an event of [`DELAYS_TOPIC`]: a JSON object with `id` and `minutes`. False if the event is malformed or
    /// names an unknown flight.
    pub fn apply_delay(&mut self, payload: &[u8]) -> bool {
        let Ok(event) = serde_json::from_slice::<Value>(payload) else { return false };
        match (event["id"].as_str(), event["minutes"].as_u64()) {
            (Some(id), Some(minutes)) => {
                self.announce_delay(id, u16::try_from(minutes).unwrap_or(DELAY_MINUTES_MAX))
            }
            _ => false,
        }
    }
}

impl FlightInMotion {
    /// Returns a value of the enum `FlightStatus`.
    pub fn status(&self) -> &'static str {
        match self.phase {
            Phase::Scheduled => "SCHEDULED",
            Phase::Delayed { .. } => "DELAYED",
            Phase::Boarding => "BOARDING",
            Phase::Airborne => "AIRBORNE",
            Phase::Landed => "LANDED",
        }
    }

    /// Returns the altitude in metres: a climb, a level part and a descent.
    pub fn altitude(&self) -> u32 {
        let cruise = u32::from(self.scheduled.cruising_altitude);
        let progress = u32::from(self.progress);
        match self.progress {
            0..CLIMB_END => cruise * progress / u32::from(CLIMB_END),
            CLIMB_END..DESCENT_START => cruise,
            _ => {
                cruise * u32::from(PROGRESS_MAX - self.progress)
                    / u32::from(PROGRESS_MAX - DESCENT_START)
            }
        }
    }

    /// Returns the flown part of the way, from 0 to 1.
    pub fn progress(&self) -> f64 {
        f64::from(self.progress) / f64::from(PROGRESS_MAX)
    }

    /// Returns the event of this flight, with the fields that the event subgraph declares.
    fn event(&self) -> Value {
        json!({
            "__typename": "Flight",
            "id": self.scheduled.id,
            "status": self.status(),
            "altitude": self.altitude(),
            "progress": self.progress(),
            "delayMinutes": self.delay_minutes,
        })
    }

    fn advance(&mut self) {
        self.phase = match self.phase {
            Phase::Scheduled if self.delay_minutes > 0 => Phase::Delayed {
                turns_left: self.delay_minutes.div_ceil(MINUTES_PER_GATE_TURN).min(GATE_TURNS_MAX)
                    - 1,
            },
            Phase::Delayed { turns_left } if turns_left > 0 => {
                Phase::Delayed { turns_left: turns_left - 1 }
            }
            Phase::Scheduled | Phase::Delayed { .. } => Phase::Boarding,
            Phase::Boarding => {
                self.delay_minutes = 0;
                self.fly()
            }
            Phase::Airborne => self.fly(),
            Phase::Landed => {
                self.progress = 0;
                Phase::Scheduled
            }
        };
    }

    fn fly(&mut self) -> Phase {
        let moves = (self.scheduled.minutes / MINUTES_PER_MOVE).max(1);
        self.progress = (self.progress + PROGRESS_MAX.div_ceil(moves)).min(PROGRESS_MAX);
        if self.progress < PROGRESS_MAX { Phase::Airborne } else { Phase::Landed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_moves_one_flight_and_publishes_it_at_two_topics() {
        let mut traffic = Traffic::new();
        let events = traffic.tick();
        assert_eq!(events.len(), 2);
        assert_eq!(
            [&*events[0].topic, &*events[1].topic],
            ["flights.moved", "flights.moved.ST101"]
        );
        for event in events {
            let actual: Value = serde_json::from_str(&event.payload).unwrap();
            let expected = json!({
                "__typename": "Flight",
                "id": "ST101",
                "status": "AIRBORNE",
                // 90 thousandths of the way at first, and 59 more: a seventeenth of 175 minutes, rounded up.
                "progress": 0.149,
                "altitude": 11_280 * 149 / 150,
                "delayMinutes": 0,
            });
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn the_same_number_of_ticks_leads_to_the_same_board() {
        let (mut one, mut other) = (Traffic::new(), Traffic::new());
        for _ in 0..1000 {
            assert_eq!(one.tick(), other.tick());
        }
        assert_eq!(one, other);
    }

    #[test]
    fn every_flight_goes_through_its_phases_and_departs_again() {
        let mut traffic = Traffic::new();
        let mut phases = std::collections::BTreeMap::<String, Vec<String>>::new();
        for _ in 0..20 * 60 {
            for event in traffic.tick().iter().filter(|event| event.topic == MOVED_TOPIC) {
                let actual: Value = serde_json::from_str(&event.payload).unwrap();
                let progress = actual["progress"].as_f64().unwrap();
                assert!((0.0..=1.0).contains(&progress));
                assert!(actual["altitude"].as_u64().unwrap() < 12_000);
                let status = actual["status"].as_str().unwrap().to_owned();
                let seen = phases.entry(actual["id"].as_str().unwrap().to_owned()).or_default();
                if seen.last() != Some(&status) {
                    seen.push(status);
                }
            }
        }
        assert_eq!(phases.len(), FLIGHTS.len());
        for (id, seen) in phases {
            let order = ["SCHEDULED", "BOARDING", "AIRBORNE", "LANDED"];
            let at = |status: &str| order.iter().position(|name| *name == status).unwrap();
            assert!(seen.len() > 4, "{id} has moved through {seen:?} only");
            for pair in seen.windows(2) {
                assert_eq!((at(&pair[0]) + 1) % 4, at(&pair[1]), "{id}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_flight_climbs_flies_level_and_lands() {
        let mut flight = Traffic::new().flight("ST101").unwrap().clone();
        let mut height = |progress| {
            flight.progress = progress;
            flight.altitude()
        };
        assert_eq!(
            [0, 75, 150, 500, 799, 900, 1000].map(&mut height),
            [0, 5640, 11280, 11280, 11280, 5640, 0]
        );
    }

    #[test]
    fn an_announced_delay_keeps_the_flight_at_its_gate_for_a_while() {
        let mut traffic = Traffic::new();
        // IM502 begins at its gate.
        assert!(traffic.apply_delay(br#"{"id": "IM502", "minutes": 30}"#));
        let mut statuses = Vec::new();
        for _ in 0..FLIGHTS.len() * 4 {
            let events = traffic.tick();
            if events[1].topic.ends_with("IM502") {
                let actual: Value = serde_json::from_str(&events[1].payload).unwrap();
                statuses.push((
                    actual["status"].as_str().unwrap().to_owned(),
                    actual["delayMinutes"].as_u64().unwrap(),
                ));
            }
        }
        let expected = [("DELAYED", 30), ("DELAYED", 30), ("BOARDING", 30), ("AIRBORNE", 0)];
        assert_eq!(statuses, expected.map(|(status, minutes)| (status.to_owned(), minutes)));
    }

    #[test]
    fn malformed_delays_are_ignored() {
        let mut traffic = Traffic::new();
        for payload in
            ["", "[]", "{}", r#"{"id": "XX1", "minutes": 5}"#, r#"{"id": "ST101", "minutes": -5}"#]
        {
            assert!(!traffic.apply_delay(payload.as_bytes()), "{payload}");
        }
        assert!(traffic.apply_delay(br#"{"id": "ST101", "minutes": 99999999}"#));
        assert_eq!(traffic.flight("ST101").unwrap().delay_minutes, DELAY_MINUTES_MAX);
        assert_eq!(traffic, {
            let mut other = Traffic::new();
            other.announce_delay("ST101", u16::MAX);
            other
        });
    }
}
