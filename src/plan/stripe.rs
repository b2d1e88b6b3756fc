//! How a striped target is laid over its members.

/// Most parts of a transfer: a stripe has members on so many drives at most.
pub const PARTS: usize = 8;

/// Chunks of `size` bytes go to one member after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes of a chunk, whole blocks.
    pub size: u64,
    /// How many members.
    pub members: u32,
}

impl Stripe {
    /// The member that has byte `offset` of the stripe, and where it has it.
    pub fn place(&self, offset: u64) -> (u32, u64) {
        let (chunk, within) = (offset / self.size, offset % self.size);
        let members = self.members as u64;
        ((chunk % members) as u32, chunk / members * self.size + within)
    }

    /// Bytes from `offset` to the end of its chunk.
    pub fn left_in_chunk(&self, offset: u64) -> u64 {
        self.size - offset % self.size
    }
}

/// Those members of a stripe, one bit each, whose units the lanes of one group claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The whole.
    pub stripe: Stripe,
    /// Bit `m` is member `m`.
    pub members: u64,
}

impl Part {
    /// Whether the part has byte `offset` of the stripe.
    pub fn has(&self, offset: u64) -> bool {
        self.members >> self.stripe.place(offset).0 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_has_a_place_of_its_own(size in 1u64..20, members in 1u32..9) {
            let stripe = Stripe { size, members };
            let mut next = vec![0; members as usize];
            for offset in 0..5 * size * members as u64 {
                let (member, at) = stripe.place(offset);
                prop_assert_eq!(at, next[member as usize], "members are filled from the front, without gaps");
                next[member as usize] += 1;
                prop_assert_eq!(stripe.place(offset + stripe.left_in_chunk(offset) - 1).0, member);
            }
            prop_assert!(next.iter().all(|filled| *filled == 5 * size));
        }
    }
}
