//! The fuzz target's function on a fixed number of random, mutated and cut messages, so that every test run has it.

use files::OpKind;
use nfs::wire::{nfs3, rpc};
use proptest::{collection::vec, prelude::*};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes_make_no_decoder_panic(input in vec(any::<u8>(), 0..300)) {
        crate::entry::hostile(&input);
    }

    /// Words that are small numbers get further than random ones.
    #[test]
    fn random_small_words_make_no_decoder_panic(choice: u8, words in vec(0_u32..9, 0..80)) {
        let bytes = words.into_iter().flat_map(u32::to_be_bytes);
        crate::entry::hostile(&std::iter::once(choice).chain(bytes).collect::<Vec<_>>());
    }

    #[test]
    fn real_messages_cut_or_with_a_spoilt_word_make_no_decoder_panic(
        material in crate::wire_values::material(), number in 0..OpKind::COUNT, call: bool,
        cut in 0_usize..400, spoilt_at in 0_usize..100,
        spoilt in prop_oneof![Just(u32::MAX), Just(0x7fff_ffff), Just(0x8000_0000), any::<u32>(), 0_u32..100],
    ) {
        let kind = OpKind::ALL[number];
        let mut input = vec![number as u8];
        if call {
            let user = rpc::AuthSys { stamp: 0, machine: material.name.clone(), uid: 1, gid: 2, gids: vec![3; 5] };
            rpc::put_call(&mut input, 1, nfs3::PROGRAM, nfs3::VERSION, number as u32, &user);
            nfs3::put_request(&mut input, &material.request(kind));
        } else {
            rpc::put_success(&mut input, 1);
            nfs3::put_reply(&mut input, kind, &Ok(material.reply(kind, &material.entries(kind))));
        }
        crate::entry::hostile(&input);
        crate::entry::hostile(&input[..cut.min(input.len())]);
        let at = 1 + 4 * spoilt_at;
        if let Some(word) = input.get_mut(at..at + 4) {
            word.copy_from_slice(&spoilt.to_be_bytes());
        }
        crate::entry::hostile(&input);
        // The bare arguments or results as well, without the head.
        let head = if call { 0 } else { 24 };
        let bare: Vec<u8> = std::iter::once(number as u8).chain(input[1 + head..].iter().copied()).collect();
        crate::entry::hostile(&bare);
    }
}
