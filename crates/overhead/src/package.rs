//! A small C package: 60 files in three directories, 12 headers, a `configure` that tries 24 programs, and a `Makefile`.
//!
//! Always the same, so that two runs build the same. It needs a C compiler and `make`, nothing more.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const FILES: usize = 60;
const HEADERS: usize = 12;
const FUNCTIONS: usize = 12;
const FOLDERS: [&str; 3] = ["core", "net", "util"];

/// What `configure` looks for, as autoconf does: by a program for each.
const HEADERS_TRIED: [&str; 14] = [
    "stdio", "stdlib", "string", "errno", "unistd", "fcntl", "time", "signal", "ctype", "limits", "stddef",
    "stdint", "math", "sys/stat",
];
const FUNCTIONS_TRIED: [&str; 10] =
    ["memcpy", "strlen", "malloc", "fork", "getpid", "rename", "unlink", "poll", "mmap", "no_such_function"];

/// Writes it into the empty directory `place`.
pub(crate) fn write(place: &Path) -> io::Result<()> {
    for folder in FOLDERS.iter().chain(&["include"]) {
        fs::create_dir(place.join(folder))?;
    }
    for number in 0..HEADERS {
        fs::write(place.join(format!("include/h{number}.h")), header(number))?;
    }
    for number in 0..FILES {
        fs::write(place.join(source_name(number)), source(number))?;
    }
    fs::write(place.join("main.c"), main_file())?;
    fs::write(place.join("Makefile.in"), makefile())?;
    let configure = place.join("configure");
    fs::write(&configure, configure_script())?;
    fs::set_permissions(configure, fs::Permissions::from_mode(0o755))
}

fn source_name(number: usize) -> String {
    format!("{}/f{number}.c", FOLDERS[number % FOLDERS.len()])
}

fn header(number: usize) -> String {
    let mut text = format!("#ifndef H{number}\n#define H{number}\n#include <stddef.h>\n");
    for file in (0..FILES).filter(|file| file % HEADERS == number) {
        for function in 0..FUNCTIONS {
            let _ = writeln!(text, "size_t f{file}_{function}(const char *text, size_t bytes);");
        }
    }
    text + "#endif\n"
}

fn source(number: usize) -> String {
    let mut text =
        String::from("#include \"config.h\"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for header in 0..HEADERS {
        let _ = writeln!(text, "#include \"h{header}.h\"");
    }
    for function in 0..FUNCTIONS {
        let _ = write!(
            text,
            "\nsize_t f{number}_{function}(const char *text, size_t bytes)\n{{\n    size_t sum = {number};\n    char line[128];\n    \
             for (size_t at = 0; at < bytes; at++) {{\n        switch (text[at] % 7) {{\n        case 0: sum += at * {function}; break;\n        \
             case 1: sum ^= sum << 3; break;\n        case 2: sum -= strlen(text); break;\n        default: sum += (unsigned char)text[at];\n        \
             }}\n    }}\n    snprintf(line, sizeof line, \"%zu {number} %s\", sum, text);\n    return sum + strlen(line);\n}}\n"
        );
    }
    text
}

fn main_file() -> String {
    let mut text = String::from("#include \"config.h\"\n#include <stdio.h>\n");
    for header in 0..HEADERS {
        let _ = writeln!(text, "#include \"h{header}.h\"");
    }
    text.push_str("int main(void)\n{\n    size_t sum = 0;\n");
    for file in 0..FILES {
        let _ = writeln!(text, "    sum += f{file}_0(\"crumb\", 5);");
    }
    text + "    return printf(\"%zu\\n\", sum) < 0;\n}\n"
}

fn makefile() -> String {
    let objects: Vec<String> = (0..FILES).map(|number| source_name(number).replace(".c", ".o")).collect();
    format!(
        "CC = @CC@\nCFLAGS = -O1 -Iinclude -I.\nOBJECTS = main.o {}\n\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n\
         $(OBJECTS): config.h\n\n.c.o:\n\t$(CC) $(CFLAGS) -c -o $@ $<\n",
        objects.join(" ")
    )
}

fn configure_script() -> String {
    format!(
        "#!/bin/sh\n# Tries programs, writes config.h and Makefile.\nset -e\nCC=${{CC:-cc}}\n: > config.h.new\n\
         for header in {headers}; do\n    printf '#include <%s.h>\\nint main(void) {{ return 0; }}\\n' $header > conftest.c\n    \
         if $CC -c conftest.c -o conftest.o 2> conftest.err; then\n        \
         echo \"#define HAVE_$(echo $header | tr a-z/ A-Z_)_H 1\" >> config.h.new\n    fi\ndone\n\
         for function in {functions}; do\n    printf 'char %s(void);\\nint main(void) {{ return %s(); }}\\n' $function $function > conftest.c\n    \
         if $CC -fno-builtin conftest.c -o conftest 2> conftest.err; then\n        \
         echo \"#define HAVE_$(echo $function | tr a-z A-Z) 1\" >> config.h.new\n    fi\ndone\n\
         rm -f conftest conftest.*\nmv config.h.new config.h\nsed \"s|@CC@|$CC|\" Makefile.in > Makefile\n",
        headers = HEADERS_TRIED.join(" "),
        functions = FUNCTIONS_TRIED.join(" ")
    )
}
