"""Taobao's files: filters counted by hand, any size of piece, every bad file told in a sentence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.paper.taobao import FATES, read_taobao
from tests.paper.helpers import write_taobao

# segments 0 and 3 are the two most frequent
USERS = """userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,\
occupation,new_user_class_level\x20
1,0,5,2,5,,3,0,3
2,0,5,2,5,1,3,0,3
3,0,4,2,4,2,3,0,3
4,3,5,1,5,3,3,0,
5,3,2,1,2,2,1,1,
6,7,5,2,5,1,3,0,2
"""
# categories 10 and 20; of their ads brands 5 and 6, though 7 has most ads of all
ADS = """adgroup_id,cate_id,campaign_id,customer,brand,price
1,10,1,1,5,170.0
2,10,1,1,5,99.0
3,10,1,1,6,1.0
4,10,1,1,NULL,5.0
5,20,1,1,6,0.05
6,20,1,1,7,88.0
7,30,1,1,7,10.0
8,40,1,1,7,10.0
9,50,1,1,7,10.0
"""
LOG = """user,time_stamp,adgroup_id,pid,nonclk,clk
1,1494137644,1,430548_1007,0,1
1,1494137645,4,430548_1007,1,0
6,1494137646,1,430548_1007,1,0
99,1494137647,1,430548_1007,1,0
2,1494137648,77,430548_1007,1,0
4,1494137649,6,430548_1007,0,1
5,1494137650,5,430548_1007,1,0
3,1494137651,7,430548_1007,0,1
99,1494137652,77,430548_1007,0,1
6,1494137653,77,430548_1007,1,0
"""
FILES = {"user_profile.csv": USERS, "ad_feature.csv": ADS, "raw_sample.csv": LOG}


def write(folder, **changed):
    for name, text in FILES.items():
        (folder / name).write_text(changed.get(name.removesuffix(".csv"), text))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = write_taobao(tmp_path_factory.mktemp("taobao"), 3000)
    return folder, read_taobao(folder)


def test_the_filters_by_hand(tmp_path):
    log = read_taobao(write(tmp_path), segments=2, top=2)
    assert log.counts == {
        "kept": 2,
        "other segment": 2,
        "no profile": 2,
        "other category": 1,
        "other brand": 2,
        "no ad": 1,
    }
    assert log.click.tolist() == [1, 0]  # user 1 with ad 1, user 5 with ad 5
    assert log.names == (
        "cms_segid=0",
        "cms_segid=3",
        "cms_group_id=2",
        "cms_group_id=5",
        "final_gender_code=1",
        "final_gender_code=2",
        "age_level=2",
        "age_level=5",
        "pvalue_level=2",
        "shopping_level=1",
        "shopping_level=3",
        "occupation=0",
        "occupation=1",
        "new_user_class_level=3",
        "cate_id=10",
        "cate_id=20",
        "brand=5",
        "brand=6",
        "log10_price=-1",
        "log10_price=3",
    )
    first = "1001 0101 0 01 10 1 10 10 01"  # pvalue is blank: no column
    second = "0110 1010 1 10 01 0 01 01 10"  # and so is the city
    wanted = [[int(bit) for bit in line if bit != " "] for line in (first, second)]
    assert log.one_hot.tolist() == wanted
    assert log.one_hot.dtype == np.uint8
    assert repr(log).startswith("AdLog: 2 displays of 10, 20 one-hot features, click rate 0.5")
    assert log.table["rows"].sum() == 10


def test_a_tie_goes_to_the_smaller_number(tmp_path):
    more = LOG + "5,1,2,430548_1007,1,0\n5,1,3,430548_1007,0,1\n"
    turned = ADS.replace("2,10,1,1,5", "2,10,1,1,6")
    tied = turned.replace("4,10,1,1,NULL", "4,10,1,1,5")
    # of the ads of category 10: brand 5 twice and 6 once, the reverse, twice each
    for ads, brand in ((ADS, 5.0), (turned, 6.0), (tied, 5.0)):
        log = read_taobao(write(tmp_path, raw_sample=more, ad_feature=ads), segments=2, top=1)
        assert log.levels["brand"].tolist() == [brand]
        assert log.levels["cate_id"].tolist() == [10.0]


def test_columns_may_stand_in_any_order(tmp_path):
    turned = "\n".join(",".join(line.split(",")[::-1]) for line in ADS.split("\n"))
    one = read_taobao(write(tmp_path), segments=2, top=2)
    other = read_taobao(write(tmp_path, ad_feature=turned), segments=2, top=2)
    np.testing.assert_array_equal(one.one_hot, other.one_hot)
    assert one.names == other.names


@settings(max_examples=15)
@given(st.integers(1, 4000))
def test_any_piece_gives_the_same_log(made, piece):
    folder, whole = made
    if piece < 40:
        piece += 40  # thousands of tiny pieces only take time
    log = read_taobao(folder, piece=piece)
    np.testing.assert_array_equal(log.codes, whole.codes)
    np.testing.assert_array_equal(log.click, whole.click)
    assert (log.counts, log.names) == (whole.counts, whole.names)


def test_a_comma_at_the_end_of_lines_shifts_no_column(tmp_path):
    one = read_taobao(write(tmp_path), segments=2, top=2)
    head, *lines = LOG.splitlines()
    ended = "\n".join([head + ",", *(line + "," for line in lines)])
    other = read_taobao(write(tmp_path, raw_sample=ended), segments=2, top=2)
    np.testing.assert_array_equal(one.codes, other.codes)
    assert one.counts == other.counts


def test_pieces_of_one_row(tmp_path):
    one, many = (read_taobao(write(tmp_path), segments=2, top=2, piece=p) for p in (1, 100))
    np.testing.assert_array_equal(one.codes, many.codes)
    assert one.counts == many.counts


def test_made_up_files_are_of_the_schema(made):
    folder, log = made
    assert sum(log.counts.values()) == 3000
    assert set(log.counts) == set(FATES)
    assert (log.one_hot.sum(1) <= 11).all()
    assert log.one_hot.any(0).all()  # every level occurs
    header = (folder / "user_profile.csv").read_text().splitlines()[0]
    assert header.endswith("new_user_class_level ")
    assert ",NULL," in (folder / "ad_feature.csv").read_text()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"raw_sample": ""}, "raw_sample.csv has no header"),
        ({"raw_sample": LOG.splitlines()[0] + "\n"}, "raw_sample.csv has a header but no rows"),
        ({"user_profile": USERS.splitlines()[0] + "\n"}, "user_profile.csv has a header but no"),
        ({"raw_sample": LOG.replace(",clk", ",click")}, "no column 'clk'; did you mean 'click'"),
        ({"ad_feature": ADS.replace("cate_id", "category")}, "no column 'cate_id'"),
        ({"raw_sample": LOG.replace("\n6,", "\nsix,")}, r"user \(whole numbers\).*six"),
        ({"raw_sample": LOG.replace("\n6,", "\n,")}, "raw_sample.csv: not a CSV of"),
        ({"raw_sample": LOG.replace(",1,0\n", ",1,2\n")}, "clk must be 0 or 1, but got 2"),
        ({"raw_sample": LOG + '1,"2,3\n'}, "raw_sample.csv: not a CSV of"),
        ({"ad_feature": ADS.replace("170.0", "dear")}, "price .numbers or blanks"),
        ({"ad_feature": ADS.replace("170.0", "0")}, "that of adgroup_id 1 is 0"),
        ({"ad_feature": ADS + "3,10,1,1,6,1.0\n"}, "adgroup_id 3 stands in 2 rows"),
        ({"user_profile": USERS + "2,0,5,2,5,1,3,0,3\n"}, "userid 2 stands in 2 rows"),
        ({"raw_sample": LOG.replace(",0,1\n", ",1,0\n")}, "none was clicked"),
        ({"raw_sample": LOG.replace("\n1,", "\n98,").replace("\n5,", "\n97,")}, "none passes"),
    ],
)
def test_a_bad_file_gets_a_sentence(tmp_path, changed, words):
    with pytest.raises(DataError, match=words):
        read_taobao(write(tmp_path, **changed), segments=2, top=2)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_before_anything_is_read(tmp_path, name):
    (write(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=rf"{name} does not exist; the folder must hold"):
        read_taobao(tmp_path)


@pytest.mark.parametrize("setting", ["segments", "top", "piece"])
def test_bad_settings_are_refused(tmp_path, setting):
    with pytest.raises(SettingError, match=f"read_taobao: {setting} must be"):
        read_taobao(write(tmp_path), **{setting: 0})
