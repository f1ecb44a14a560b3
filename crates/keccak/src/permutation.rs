//! Keccak-f\[1600\] (FIPS 202, section 3), written once for every kind of register.

/// Constants of step iota in each of the 24 rounds (FIPS 202, section 3.2.5).
pub(crate) const ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// The permutation over registers of a type, with what the module around it has: `xor`, `xor3`,
/// `rotate`, `chi` and `splat`. A macro, since a function over a trait would lose the features that its
/// instructions need.
macro_rules! permutation {
    ($feature:literal, $register:ty) => {
        #[target_feature(enable = $feature)]
        fn permute(state: &mut [$register; 25]) {
            for constant in crate::permutation::ROUND_CONSTANTS {
                theta(state);
                rho_and_pi(state);
                for row in state.as_chunks_mut::<5>().0 {
                    let [a, b, c, d, e] = *row;
                    *row = [chi(a, b, c), chi(b, c, d), chi(c, d, e), chi(d, e, a), chi(e, a, b)];
                }
                state[0] = xor(state[0], splat(constant));
            }
        }

        /// Each word is mixed with the parity of two columns.
        #[inline]
        #[target_feature(enable = $feature)]
        fn theta(state: &mut [$register; 25]) {
            let column = |x: usize| {
                let upper = xor3(state[x], state[x + 5], state[x + 10]);
                xor3(upper, state[x + 15], state[x + 20])
            };
            let parity = [column(0), column(1), column(2), column(3), column(4)];
            for x in 0..5 {
                let (left, right) = (parity[(x + 4) % 5], rotate::<1, 63>(parity[(x + 1) % 5]));
                for y in 0..5 {
                    state[x + 5 * y] = xor3(state[x + 5 * y], left, right);
                }
            }
        }

        /// Each word is rotated and takes the place of another, all but the first in one cycle.
        #[inline]
        #[target_feature(enable = $feature)]
        fn rho_and_pi(state: &mut [$register; 25]) {
            let mut moved = state[1];
            $crate::permutation::cycle!(state, moved;
                10 1 63, 7 3 61, 11 6 58, 17 10 54, 18 15 49, 3 21 43, 5 28 36, 16 36 28,
                8 45 19, 21 55 9, 24 2 62, 4 14 50, 15 27 37, 23 41 23, 19 56 8, 13 8 56,
                12 25 39, 2 43 21, 20 62 2, 14 18 46, 22 39 25, 9 61 3, 6 20 44, 1 44 20);
        }
    };
}

/// Place, rotation to the left, and the same to the right: rotations are part of instructions.
macro_rules! cycle {
    ($state:ident, $moved:ident; $($place:literal $left:literal $right:literal),*) => {
        $(
            let next = $state[$place];
            $state[$place] = rotate::<$left, $right>($moved);
            $moved = next;
        )*
        let _ = $moved;
    };
}

pub(crate) use {cycle, permutation};
