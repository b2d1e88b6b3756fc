//! The phases of an entry, and the table of their transitions: see [`super::slots`].

/// Phases of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nobody's.
    Free,
    /// Lanes work on it.
    Active,
    /// Published; the body waits for the client.
    Done,
    /// Published as abandoned; lanes still hold the body.
    Abandoned,
    /// Abandoned and seen by the client; lanes still hold the body.
    Forgotten,
    /// Abandoned, late results absorbed, not yet seen by the client.
    Absorbed,
}

/// What moves an entry from phase to phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Activate,
    Finish,
    Abandon,
    Consume,
}

/// The table of transitions. What it lacks cannot happen.
pub fn next(phase: Phase, event: Event) -> Option<Phase> {
    Some(match (phase, event) {
        (Phase::Free, Event::Activate) => Phase::Active,
        (Phase::Active, Event::Finish) => Phase::Done,
        (Phase::Active, Event::Abandon) => Phase::Abandoned,
        (Phase::Done, Event::Consume) => Phase::Free,
        (Phase::Abandoned, Event::Consume) => Phase::Forgotten,
        (Phase::Abandoned, Event::Finish) => Phase::Absorbed,
        (Phase::Forgotten, Event::Finish) => Phase::Free,
        (Phase::Absorbed, Event::Consume) => Phase::Free,
        _ => return None,
    })
}

const PHASES: [Phase; 6] =
    [Phase::Free, Phase::Active, Phase::Done, Phase::Abandoned, Phase::Forgotten, Phase::Absorbed];

/// A word of an entry: its generation, and what the word is about.
pub fn word(generation: u32, low: u32) -> u64 {
    (generation as u64) << 32 | low as u64
}

/// The phase in a state word.
pub fn phase_of(word: u64) -> Phase {
    PHASES[(word & 0xff) as usize % PHASES.len()]
}
