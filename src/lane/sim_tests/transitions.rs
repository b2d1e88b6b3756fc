//! The table of transitions of an entry, pair by pair.

use crate::lane::phase::{Event, Phase, next};

const PHASES: [Phase; 6] =
    [Phase::Free, Phase::Active, Phase::Done, Phase::Abandoned, Phase::Forgotten, Phase::Absorbed];
const EVENTS: [Event; 4] = [Event::Activate, Event::Finish, Event::Abandon, Event::Consume];

#[test]
fn every_pair_of_phase_and_event() {
    use {Event as E, Phase as P};
    let allowed = [
        (P::Free, E::Activate, P::Active),
        (P::Active, E::Finish, P::Done),
        (P::Active, E::Abandon, P::Abandoned),
        (P::Done, E::Consume, P::Free),
        (P::Abandoned, E::Consume, P::Forgotten),
        (P::Abandoned, E::Finish, P::Absorbed),
        (P::Forgotten, E::Finish, P::Free),
        (P::Absorbed, E::Consume, P::Free),
    ];
    for phase in PHASES {
        for event in EVENTS {
            let to = allowed.iter().find(|(from, by, _)| (*from, *by) == (phase, event)).map(|(.., to)| *to);
            assert_eq!(next(phase, event), to, "{phase:?} on {event:?}");
        }
    }
}

/// What the pairs add up to: from free, every way leads back to free, by exactly one consumption and one finish.
#[test]
fn every_way_through_consumes_once_and_finishes_once() {
    fn walk(phase: Phase, trail: &mut Vec<Event>, ways: &mut Vec<Vec<Event>>) {
        for event in EVENTS {
            let Some(to) = next(phase, event) else { continue };
            trail.push(event);
            if to == Phase::Free {
                ways.push(trail.clone());
            } else {
                walk(to, trail, ways);
            }
            trail.pop();
        }
    }
    let mut ways = Vec::new();
    walk(Phase::Free, &mut Vec::new(), &mut ways);
    assert_eq!(ways.len(), 3, "{ways:?}");
    for way in ways {
        for once in [Event::Activate, Event::Finish, Event::Consume] {
            assert_eq!(way.iter().filter(|event| **event == once).count(), 1, "{way:?}");
        }
    }
}
