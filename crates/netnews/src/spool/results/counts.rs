//! Counts that add up: over the passes of a run, and over its ranks.

/// Declares a struct of counts, all of whose fields are added and subtracted one by one.
macro_rules! counts {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $kind,)*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, more: Self) {
                $(self.$field += more.$field;)*
            }
        }

        impl std::ops::Sub for $name {
            type Output = Self;

            fn sub(self, before: Self) -> Self {
                Self { $($field: self.$field - before.$field,)* }
            }
        }
    };
}

pub(crate) use counts;

#[cfg(test)]
mod tests {
    counts! {
        /// Two counts.
        pub struct Two {
            /// One.
            pub one: u64,
            /// Another.
            pub other: u64,
        }
    }

    #[test]
    fn every_field_adds_up_and_what_was_there_before_is_subtracted() {
        let before = Two { one: 1, other: 5 };
        let mut sum = before;
        sum += Two { one: 2, other: 7 };
        assert_eq!(sum, Two { one: 3, other: 12 });
        assert_eq!(sum - before, Two { one: 2, other: 7 });
    }
}
