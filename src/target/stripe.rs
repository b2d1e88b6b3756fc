//! Several targets as one.

use super::inner::{Striped, TargetInner};
use crate::error::{Error, ErrorKind};
use crate::plan::{PARTS, Stripe};
use std::sync::Arc;

/// Most members: a part has a bit for each.
pub const MOST: usize = 64;

/// Makes one target of `members`, chunks of `size` bytes in turn. Its size is that of the smallest member, whole
/// chunks, for each.
pub fn stripe(members: Vec<Arc<TargetInner>>, size: u64, engine: u64) -> Result<TargetInner, Error> {
    let bad = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
    if !(1..=MOST).contains(&members.len()) {
        return bad(format!("a stripe has 1 to {MOST} members, and {} were given", members.len()));
    }
    let first = &members[0];
    let block = first.geometry.block as u64;
    if size == 0 || !size.is_multiple_of(block.max(4096)) || size > 1 << 30 {
        return bad(format!(
            "a stripe size of {size} bytes; give whole blocks, from {} to 1 GiB",
            block.max(4096)
        ));
    }
    for (index, member) in members.iter().enumerate() {
        if member.striped.is_some() {
            return bad(format!("{} is a stripe itself; name its members", member.name));
        }
        if members[..index].iter().any(|other| same(other, member)) {
            return bad(format!("{} is named twice; each member must be another", member.name));
        }
        let alike = (member.kind, member.direct, member.writable, member.polled, member.geometry)
            == (first.kind, first.direct, first.writable, first.polled, first.geometry);
        if !alike {
            let message = format!(
                "members must be of one kind and geometry and opened alike: {} is {:?} with {:?}, {} is {:?} with {:?}",
                first.name, first.kind, first.geometry, member.name, member.kind, member.geometry
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let count = members.len() as u64;
    let least = members.iter().map(|member| member.size()).min().unwrap_or(0);
    let name = members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(":");
    let total = (least / size * size).checked_mul(count).filter(|total| *total <= i64::MAX as u64);
    let Some(total) = total else {
        return bad("the members together are larger than an offset can say".into());
    };
    if total == 0 {
        return bad(format!(
            "the smallest member has {least} bytes, less than a chunk of {size}; make the chunk smaller"
        ));
    }
    let mut target = TargetInner::bare(&name, engine, first.kind, first.geometry, total);
    (target.direct, target.writable, target.polled) = (first.direct, first.writable, first.polled);
    target.punts = members.iter().any(|member| member.punts);
    target.unfixed = members.iter().find_map(|member| member.unfixed.clone());
    let stripe = Stripe { size, members: count as u32 };
    let (parts, groups) = parts(&members);
    if parts.len() > PARTS {
        let message = format!(
            "the members are on {} drives, each with lanes of its own, and a stripe takes {PARTS}; make two stripes",
            parts.len()
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    target.striped = Some(Striped { stripe, members, parts });
    let _ = target.groups.set(groups);
    Ok(target)
}

/// Whether both are one device or file, by whatever path.
fn same(one: &TargetInner, other: &TargetInner) -> bool {
    match (one.identity(), other.identity()) {
        (Some(one), Some(other)) => one == other,
        _ => one.name == other.name,
    }
}

/// Members by the group of lanes that serves them, as bits, and those groups.
fn parts(members: &[Arc<TargetInner>]) -> (Vec<u64>, Vec<usize>) {
    let (mut parts, mut groups) = (Vec::<u64>::new(), Vec::new());
    for (index, member) in members.iter().enumerate() {
        let group = member.groups.get().and_then(|groups| groups.first().copied()).unwrap_or(0);
        let part = groups.iter().position(|known| *known == group).unwrap_or_else(|| {
            groups.push(group);
            parts.push(0);
            parts.len() - 1
        });
        parts[part] |= 1 << index;
    }
    (parts, groups)
}
