"""Questions on one relation of one entity, over real intros."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest

from nano_training.reader import relations
from nano_training.reader.relations import page_of, relation_rows, stated, tidy

FILM = (
    "Night Train is a 1947 American crime drama film directed by Ann Lee, written by Bo Berg"
    " and starring Cy Young and Dee Fox. It was released on May 3, 1947, by Acme Pictures. It"
    " was produced by Eve Gray. The music was composed by Flo Hart. The cinematography was by"
    ' Gus Ray. It is based on the novel "The Late Train" by Ida Moss. It won the Golden Globe'
    " Award. It is also known as Last Stop."
)
SERIES = (
    "Tall Pines is a British sitcom created by Hal Orr. It first aired on BBC Two on 4 May"
    " 1989. It was produced by Zenith Films. The series ran for three seasons and 21 episodes."
)
SONG = (
    '"Blue Door" is a pop rock song by Irish singer Jo Kerr from her second album Open House.'
    " It was written by Kit Lowe. It was released by Island Records on 7 June 2001."
)
NOVEL = "Salt is a novel by Lou Marsh. It was published by Faber and Faber in 1961."
GAME = "Star Maze is a video game developed by Moon Works and released on 3 July 1991."
PERSON = (
    "Alex North (born Maximilian Nord; 2 May 1901 – 6 June 1980) was a Danish football"
    " midfielder. He played for Ajax Amsterdam. He was the son of Otto Nord and his wife Anna"
    " Nord. He is the brother of Paul North. He was the husband of Rita South and the father of"
    " Sam North. He graduated from Lund University. He worked for Nokia. He converted to"
    " Catholicism. He was a member of the Green Party. He served as Governor of Zealand. He won"
    " the Nobel Prize. He played the violin. He was a member of the band The Larks. He is best"
    " known for his role as Peter Pan. He served in the navy during the Korean War. He died of"
    " lung cancer in Oslo, aged 79. He was buried in Holmen Cemetery."
)
DUKE = (
    "Karl II (1301–1346) was Duke of Solms from 1320 to 1346. He was a member of the House of"
    " Nassau. He was succeeded by his son Otto III."
)
TOWN = (
    "Greenford is a town in Adams County, Ohio, United States. The population was 1,204 in"
    " 2010. It has an area of 12 square miles. Its capital is Northtown. It is the capital of"
    " the Lake Region. The official language is German. The currency is the euro."
)
RIVER = "The Amber River is a river in Kansas. It is 40 km long and flows into the Grey Lake."
COMPANY = (
    "Orbit Foods is an American food company based in Boston, Massachusetts. It was founded in"
    " 1950 by Ned Oak. It is owned by Giant Corporation."
)
CLUB = (
    "Hill Rovers are a football club located in Leeds, England, that plays in the Premier League."
)
HALL = (
    "Rose Hall is a concert venue in Perth. It was designed by Una Vale. It was opened in 1930."
    " It has a capacity of 900. It was named after Queen Mary."
)
PLANT = (
    "Rubra minor is a species of plant in the family Rosaceae, in the genus Ulmus. It was"
    " described by Ola Wik. It was discovered in 1842. It is native to New Zealand. The flowers"
    " are white."
)
BATTLE = (
    "The Battle of Elm was a battle of the Red War. The Battle of Elm was fought on 3 May 1644."
)
STATED = {
    ("Night Train (1947 film)", FILM): {
        "director": "Ann Lee",
        "producer": "Eve Gray",
        "distributor": "Acme Pictures",
        "screenwriter": "Bo Berg",
        "composer": "Flo Hart",
        "cinematographer": "Gus Ray",
        "cast": "Cy Young and Dee Fox",
        "genre": "crime drama",
        "year": "1947",
        "release": "May 3, 1947",
        "country": "American",
        "based_on": "The Late Train",
        "source_author": "Ida Moss",
        "award": "Golden Globe Award",
        "alias": "Last Stop",
    },
    ("Tall Pines", SERIES): {
        "creator": "Hal Orr",
        "network": "BBC Two",
        "premiere": "4 May 1989",
        "studio": "Zenith Films",
        "seasons": "three",
        "episodes": "21",
    },
    ("Blue Door (Jo Kerr song)", SONG): {
        "performer": "Jo Kerr",
        "songwriter": "Kit Lowe",
        "album": "Open House",
        "label": "Island Records",
        "music_genre": "pop rock",
    },
    ("Salt (novel)", NOVEL): {
        "author": "Lou Marsh",
        "publisher": "Faber and Faber",
        "published": "1961",
    },
    ("Star Maze", GAME): {"developer": "Moon Works"},
    ("Mor Bhav", "Mor Bhav is a 1988 Telugu drama film."): {"language": "Telugu"},
    ("Alex North", PERSON): {
        "birth_date": "2 May 1901",
        "death_date": "6 June 1980",
        "death_place": "Oslo",
        "death_cause": "lung cancer",
        "burial": "Holmen Cemetery",
        "age": "79",
        "nationality": "Danish",
        "father": "Otto Nord",
        "mother": "Anna Nord",
        "spouse": "Rita South",
        "child": "Sam North",
        "sibling": "Paul North",
        "school": "Lund University",
        "employer": "Nokia",
        "team": "Ajax Amsterdam",
        "sport": "football",
        "position": "midfielder",
        "instrument": "violin",
        "band_of": "The Larks",
        "religion": "Catholicism",
        "party": "Green Party",
        "office": "Governor of Zealand",
        "birth_name": "Maximilian Nord",
        "role": "Peter Pan",
        "served_in_war": "Korean War",
    },
    ("Karl II", DUKE): {
        "birth_year": "1301",
        "reign": "1320 to 1346",
        "realm": "Solms",
        "house": "Nassau",
        "successor": "Otto III",
    },
    ("Greenford", TOWN): {
        "located": "Adams County, Ohio, United States",
        "in_country": "United States",
        "in_state": "Ohio",
        "in_county": "Adams County",
        "capital": "Northtown",
        "capital_of": "Lake Region",
        "population": "1,204",
        "area": "12 square miles",
        "spoken": "German",
        "currency": "euro",
    },
    ("Mount Ash", "Mount Ash is a mountain with an elevation of 900 m."): {"elevation": "900 m"},
    ("Amber River", RIVER): {"length": "40 km", "mouth": "Grey Lake"},
    ("Orbit Foods", COMPANY): {
        "headquarters": "Boston, Massachusetts",
        "founded": "1950",
        "founder": "Ned Oak",
        "owner": "Giant Corporation",
    },
    ("Hill Rovers", CLUB): {"league": "Premier League"},
    ("Rose Hall", HALL): {
        "architect": "Una Vale",
        "opened": "1930",
        "capacity": "900",
        "named_after": "Queen Mary",
    },
    ("Rubra minor", PLANT): {
        "family": "Rosaceae",
        "genus": "Ulmus",
        "discovered": "Ola Wik",
        "discovery_year": "1842",
        "range": "New Zealand",
        "colour": "white",
    },
    ("Battle of Elm", BATTLE): {"battle_date": "3 May 1644", "war": "Red War"},
}


@pytest.mark.parametrize(("page", "expected"), STATED.items(), ids=[title for title, _ in STATED])
def test_what_an_intro_states(page: tuple[str, str], expected: dict[str, str]) -> None:
    read = page_of(*page)
    assert read
    found = {fact.relation.name: fact.answer for fact in stated(read)}
    assert {name: found.get(name) for name in expected} == expected


def test_every_relation_is_covered() -> None:
    covered = {name for expected in STATED.values() for name in expected}
    assert covered == {relation.name for relation in relations.relations()}


def test_nobody_is_asked_for_an_occupation_or_a_place_of_birth() -> None:
    asked = " ".join(wording for relation in relations.relations() for wording in relation.ask)
    assert not re.search(
        r"occupation|profession|\bjob\b|(?i:place of birth|where was \S+ born)", asked
    )
    assert not re.search(r"(?i)(?:where|city|place|country|town)[^?]*\bborn\b|birth ?place", asked)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            'Frank( born 1901), the" Duke" of Al- Shabab',
            'Frank (born 1901), the "Duke" of Al-Shabab',
        ),
        ("pre- and post-war art , by O' Neill 's son", "pre- and post-war art, by O'Neill's son"),
        ('the" odd" one" out', 'the" odd" one" out'),
    ],
)
def test_texts_that_were_split_into_tokens(text: str, clean: str) -> None:
    assert tidy(text) == clean


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("List of films", "List of films is a list."),
        ("Ann Lee", "Somebody else was a singer."),
        ("Ann Lee", "Ann Lee sang in Paris."),
    ],
)
def test_what_is_no_intro(title: str, text: str) -> None:
    assert page_of(title, text) is None


def test_of_another_subject_nothing_is_stated() -> None:
    page = page_of("Ann Lee", "Ann Lee is a Dutch singer. Bo Berg is the son of Otto Berg.")
    assert page
    assert {fact.relation.name for fact in stated(page)} == {"nationality"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data sets, of the pages above and their namesakes."""
    pages = [*STATED, *((title.replace("1947", "1999"), text) for title, text in STATED)]
    pages.append(("Alex Berg", "Alex Berg (1 May 1950 – 2 June 1999) was a Swedish singer."))
    rows = [{"title": title, "text": text} for title, text in pages]
    (tmp_path / "2wikimultihopqa_corpus_6119.json").write_text(json.dumps(rows))
    (tmp_path / "hotpotqa_train100_corpus.json").write_text(
        json.dumps({"Io": ["Io is a 1980 film", " directed by Al Po."]})
    )
    paragraph = {"title": "Uz", "paragraph_text": "Uz is a 1990 film directed by Ed Wu."}
    (tmp_path / "musique_train100.json").write_text(json.dumps([{"paragraphs": [paragraph]}]))
    context = {"title": "Ra", "text": "Ra is a 2005 film directed by Mo Li."}
    with gzip.open(tmp_path / "nq_open_oracle_2655.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"ctxs": [context]}))
    return tmp_path


def test_rows(data: Path) -> None:
    rows = relation_rows(data)
    answerable = [row for row in rows if row.answers]
    assert {"Io", "Uz", "Ra", "Alex North"} <= {row.title for row in answerable}
    assert all(answer in row.passage for row in answerable for answer in row.answers)
    assert any(row.question.endswith("?") for row in rows)
    assert any(row.question == row.question.lower() for row in rows)
    assert relation_rows(data) == rows
    assert relation_rows(data, seed=1) != rows


def test_passages_that_do_not_answer(data: Path) -> None:
    rows = [row for seed in range(20) for row in relation_rows(data, seed=seed) if not row.answers]
    assert any("Alex North" in row.question and row.title == "Alex Berg" for row in rows)
    assert any("Io" in row.question and row.title != "Io" for row in rows)
    assert not [
        row
        for row in rows
        if "rain" in row.question and "directed by Ann" in row.passage and "direct" in row.question
    ]


def test_a_passage_holds_the_sentence_that_states_the_fact() -> None:
    page = page_of("Alex North", PERSON)
    assert page
    (fact,) = (fact for fact in stated(page) if fact.relation.name == "school")
    cuts = {relations.passage(page, fact.sentence, random.Random(seed)) for seed in range(30)}
    assert len(cuts) > 5
    assert all(fact.answer in text and page.text[start:].startswith(text) for text, start in cuts)
