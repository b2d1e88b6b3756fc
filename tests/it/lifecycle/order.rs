//! Who comes first: within a class the earlier one, and of two classes the better.

use super::{LIMIT, place};
use crate::support::within;
use fullbore::{Client, Completion, Engine, Priority, Region, Target, Transfer};

const OBJECT: usize = 4 << 20;

fn submit(
    client: &Client,
    target: &Target,
    region: &Region,
    at: usize,
    len: usize,
    class: Priority,
    tag: u64,
) {
    let lease = region.lease(at..at + len).expect("free");
    client.submit_tagged(Transfer::read(target).extent(0, lease).priority(class), tag).expect("accepted");
}

fn tags(done: &[Completion]) -> Vec<u64> {
    done.iter().map(|d| d.tag).collect()
}

/// One lane, one command at a time: nothing that the device reorders.
fn engine() -> Engine {
    Engine::builder().lanes(1).lane_depth(1).build().unwrap()
}

#[test]
fn completions_of_one_client_come_in_the_order_of_submission() {
    let null = Engine::builder().null().lanes(1).lane_depth(1).build().unwrap();
    let target = null.open_null(1 << 30).unwrap();
    in_order(&null, &target);
    if let Some(place) = place() {
        let engine = engine();
        in_order(&engine, &place.open(&engine));
    }
}

fn in_order(engine: &Engine, target: &Target) {
    within(LIMIT, "completions in order", || {
        let (region, client) = (engine.alloc_host(64 * 65_536).unwrap(), engine.client().unwrap());
        for round in 0..4 {
            for i in 0..64 {
                submit(
                    &client,
                    target,
                    &region,
                    i * 65_536,
                    1 + i * 1024,
                    Priority::Normal,
                    round * 100 + i as u64,
                );
            }
            let mut done = Vec::new();
            while done.len() < 64 {
                client.wait(1, &mut done, None).unwrap();
            }
            assert_eq!(tags(&done), (0..64).map(|i| round * 100 + i).collect::<Vec<_>>());
        }
    });
}

/// A small urgent transfer does not wait for the queue of low ones, and each class overtakes those below it.
#[test]
fn an_urgent_transfer_overtakes_a_queue_of_low_ones() {
    let Some(place) = place() else { return };
    within(LIMIT, "priorities", || {
        let engine = engine();
        let (target, client) = (place.open(&engine), engine.client().unwrap());
        let region = engine.alloc_host(16 * OBJECT + 16_384).unwrap();
        for i in 0..16 {
            submit(&client, &target, &region, i * OBJECT, OBJECT, Priority::Low, i as u64);
        }
        let small = [Priority::Normal, Priority::High, Priority::Urgent];
        for (i, class) in small.into_iter().enumerate() {
            submit(&client, &target, &region, 16 * OBJECT + i * 4096, 4096, class, 100 + i as u64);
        }
        let mut done = Vec::new();
        let before = client.poll(&mut done);
        assert!(before < 8, "the queue was served before it was full: {before}");
        client.wait(19 - before, &mut done, None).unwrap();
        let order = tags(&done);
        for tag in 100..103 {
            let place = order.iter().position(|t| *t == tag).unwrap();
            assert!(
                place < before + 5,
                "{tag} came as number {place} of {order:?}, {before} were over before"
            );
        }
        let low: Vec<_> = order.into_iter().filter(|t| *t < 100).collect();
        assert_eq!(low, (0..16).collect::<Vec<_>>(), "the low ones keep their order");
    });
}

/// Priority is no wall: while better ones queue, a low transfer still gets its share.
#[test]
fn a_low_transfer_is_not_starved() {
    let Some(place) = place() else { return };
    within(LIMIT, "no starvation", || {
        let engine = engine();
        let (target, client) = (place.open(&engine), engine.client().unwrap());
        let region = engine.alloc_host(16 * OBJECT + (512 << 10)).unwrap();
        // 512 urgent commands; 4 low ones are due within 64 of them.
        submit(&client, &target, &region, 0, OBJECT, Priority::Urgent, 0);
        submit(&client, &target, &region, 16 * OBJECT, 512 << 10, Priority::Low, 100);
        for i in 1..16 {
            submit(&client, &target, &region, i * OBJECT, OBJECT, Priority::Urgent, i as u64);
        }
        let mut done = Vec::new();
        while done.len() < 17 {
            client.wait(17 - done.len(), &mut done, None).unwrap();
        }
        let place = done.iter().position(|d| d.tag == 100).unwrap();
        assert!(place <= 8, "the low one came as number {place} of {:?}", tags(&done));
    });
}
