//! As much of Rust's grammar as the layering rules need: tokens with their lines, paths, bodies.

/// A source cut into tokens; comments are apart, and strings and characters are gone.
pub struct Source {
    pub tokens: Vec<Token>,
    /// For each line, from the first on, what its comments say.
    pub comments: Vec<String>,
    /// For each line, whether there is anything on it that is not a comment.
    pub has_code: Vec<bool>,
}

pub struct Token {
    /// A word, `::`, or one character of anything else.
    pub text: String,
    /// From 1 on.
    pub line: usize,
}

/// A path as written, groups resolved: `crate::{a::b, c}` is `[crate, a, b]` and `[crate, c]`.
#[derive(Debug, PartialEq)]
pub struct Path {
    pub segments: Vec<String>,
    pub line: usize,
    /// The token it begins at.
    pub at: usize,
}

impl Source {
    pub fn new(text: &str) -> Source {
        let lines = text.lines().count() + 1;
        let source =
            Source { tokens: Vec::new(), comments: vec![String::new(); lines], has_code: vec![false; lines] };
        let mut lexer = Lexer { rest: text, line: 1, source };
        while !lexer.rest.is_empty() {
            lexer.next();
        }
        lexer.source
    }

    /// The text of a token, or nothing past the end.
    pub fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// All paths that begin with one of these words.
    pub fn paths(&self, roots: &[&str]) -> Vec<Path> {
        let mut paths = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let root = roots.contains(&self.text(at)) && (at == 0 || self.text(at - 1) != "::");
            at = if root { self.path(at, &[], &mut paths) } else { at + 1 };
        }
        paths
    }

    /// Reads the path, or tree of paths, that begins at a token; answers the token after it.
    fn path(&self, mut at: usize, prefix: &[String], paths: &mut Vec<Path>) -> usize {
        let mut segments = prefix.to_vec();
        let begin = at;
        while is_word(self.text(at)) || self.text(at) == "*" {
            segments.push(self.text(at).to_owned());
            at += 1;
            if self.text(at) != "::" {
                break;
            }
            at += 1;
        }
        if self.text(at) != "{" || self.text(at - 1) != "::" {
            paths.push(Path { segments, line: self.tokens[begin].line, at: begin });
            return at;
        }
        at += 1;
        while !matches!(self.text(at), "}" | "") {
            let starts = is_word(self.text(at)) || self.text(at) == "*";
            at = if starts { self.path(at, &segments, paths) } else { at + 1 };
            // `as name`: the name is not a path.
            while !matches!(self.text(at), "," | "}" | "") {
                at += 1;
            }
            at += usize::from(self.text(at) == ",");
        }
        at + 1
    }

    /// The `{` of the function or module whose keyword is at a token, if it has a name and a body.
    fn body(&self, keyword: usize) -> Option<usize> {
        let mut depth = 0;
        let named = is_word(self.text(keyword + 1));
        for at in keyword..if named { self.tokens.len() } else { keyword } {
            match self.text(at) {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                ";" if depth == 0 => return None,
                "{" if depth == 0 => return Some(at),
                _ => {}
            }
        }
        None
    }

    /// The `}` that closes a `{`.
    fn closing(&self, open: usize) -> usize {
        let mut depth = 0;
        for at in open..self.tokens.len() {
            match self.text(at) {
                "{" => depth += 1,
                "}" if depth == 1 => return at,
                "}" => depth -= 1,
                _ => {}
            }
        }
        self.tokens.len() - 1
    }

    /// All bodies of a keyword, `fn` or `mod`: the keyword's token, and the tokens from `{` to before `}`.
    pub fn bodies(&self, keyword: &str) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let keywords = (0..self.tokens.len()).filter(move |&at| self.text(at) == keyword);
        keywords.filter_map(|at| self.body(at).map(|open| (at, open..self.closing(open))))
    }
}

pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    source: Source,
}

impl Lexer<'_> {
    fn next(&mut self) {
        let first = self.rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.comment(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment(self.rest));
        } else {
            self.source.has_code[self.line - 1] = true;
            match literal(self.rest) {
                Some(length) => self.skip(length),
                None => self.token(),
            }
        }
    }

    fn token(&mut self) {
        let rest = self.rest;
        let word = rest.find(|c: char| !is_word(c.encode_utf8(&mut [0; 4]))).unwrap_or(rest.len());
        let one = rest.chars().next().map_or(0, char::len_utf8);
        let length = if rest.starts_with("::") { 2 } else { word.max(one) };
        self.source.tokens.push(Token { text: rest[..length].to_owned(), line: self.line });
        self.skip(length);
    }

    fn comment(&mut self, length: usize) {
        for (i, line) in self.rest[..length].lines().enumerate() {
            self.source.comments[self.line - 1 + i].push_str(line);
        }
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.line += self.rest[..length].matches('\n').count();
        self.rest = &self.rest[length..];
    }
}

/// The length of a block comment, which may have others in it.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the string or character that the text begins with, if it does.
fn literal(text: &str) -> Option<usize> {
    let unprefixed = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - unprefixed.len();
    if prefix > 2 {
        return None;
    }
    if text[..prefix].ends_with('r') {
        let hashes = unprefixed.len() - unprefixed.trim_start_matches('#').len();
        let inside = unprefixed[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
        return Some(prefix + hashes + 1 + length);
    }
    let quote = unprefixed.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = &unprefixed[1..];
    if quote == '\'' {
        // `'a'` and `'\n'` are characters; `'a` and `'static` are lifetimes.
        let mut chars = inside.chars();
        let escaped = chars.next()? == '\\';
        if !escaped && chars.next()? != '\'' {
            return None;
        }
    }
    let mut escape = false;
    let end = inside.find(|c| {
        let closes = c == quote && !escape;
        escape = c == '\\' && !escape;
        closes
    });
    Some(prefix + 1 + end.map_or(inside.len(), |at| at + 1))
}
