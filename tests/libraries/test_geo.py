"""GeoArrow: the extension types and their coordinate systems go through."""

import json

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def refusal(ask):
    with pytest.raises(ad.ExchangeError) as info:
        ask()
    return info.value


@pytest.fixture
def frame():
    geopandas = pytest.importorskip("geopandas")
    shapely = pytest.importorskip("shapely")
    points = [shapely.Point(1, 2), None]
    return geopandas.GeoDataFrame({"n": [1, 2]}, geometry=points, crs="EPSG:4326")


def test_frames(frame):
    cls = type(frame)
    for encoding, name in (("WKB", b"geoarrow.wkb"), ("geoarrow", b"geoarrow.point")):
        batch = ad.record_batch(frame.to_arrow(geometry_encoding=encoding))
        metadata = batch.schema.children[1].metadata
        assert metadata[b"ARROW:extension:name"] == name
        assert json.loads(metadata[b"ARROW:extension:metadata"])["crs"]["id"]["code"] == 4326
        assert batch["geometry"].null_count == 1
        for source in (batch, ad.array_stream([batch])):
            back = cls.from_arrow(source)
            assert back.crs == frame.crs and back.equals(frame)
        for source in (batch, ad.array_stream([batch])):
            assert ad.convert(source, cls).equals(frame)
        assert refusal(lambda batch=batch: ad.convert(batch, cls, copy=False)).reason == "copy"


def test_series(frame):
    cls = type(frame.geometry)
    column = ad.array(frame.geometry.to_arrow())
    assert column.to_pylist()[1] is None
    for back in (cls.from_arrow(column), ad.convert(column, cls)):
        assert back.crs == frame.crs and back.equals(frame.geometry)


def test_frame_itself_raises(frame):
    """It inherits the method of pandas, which fails: docs/upstream."""
    for x in (frame, frame.geometry):
        for take in (ad.array, ad.array_stream):
            error = refusal(lambda x=x, take=take: take(x))
            assert (error.reason, error.hint) == ("refused", "pass x.to_arrow()")
        assert len(ad.array(x.to_arrow())) == 2


def test_columns_without_a_geometry(frame):
    cls, geometry = type(frame.geometry), frame.geometry
    wkb, wkt = (
        ad.array(pa.array(texts, from_pandas=True))
        for texts in (geometry.to_wkb(), geometry.to_wkt())
    )
    for column in (wkb, wkt, ad.array(np.arange(2.0))):
        error = refusal(lambda column=column: ad.convert(column, cls))
        assert error.reason == "target"
        assert "GeoSeries.from_wkb(x), .from_wkt(x) and .from_xy(x, y)" in error.hint
    assert "from_wkb" in refusal(lambda: ad.record_batch({"g": wkb}).into(type(frame))).hint
    for back in (cls.from_wkb(wkb, crs=frame.crs), cls.from_wkt(wkt, crs=frame.crs)):
        assert back.equals(geometry)
    x, y = ad.array(np.array([1.0])), ad.array(np.array([2.0]))
    assert cls.from_xy(x, y, crs=frame.crs).equals(geometry[:1])


def test_files(frame, tmp_path):
    pyogrio = pytest.importorskip("pyogrio")
    path = str(tmp_path / "x.gpkg")
    pyogrio.write_arrow(
        ad.array_stream(frame.to_arrow()),
        path,
        geometry_type="Point",
        geometry_name="geometry",
        crs="EPSG:4326",
    )
    with pyogrio.open_arrow(path) as (about, source):
        assert about["crs"] == "EPSG:4326"
        [batch] = ad.array_stream(source)
    assert batch["n"].to_pylist() == [1, 2] and batch["geom"].null_count == 1
    assert batch.schema.children[1].metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"


def test_geoarrow():
    geoarrow = pytest.importorskip("geoarrow.pyarrow")
    points = geoarrow.as_geoarrow(["POINT (1 2)", None, "POINT (3 4)"])
    column = ad.array(points)
    assert column.to_pylist() == [{"x": 1, "y": 2}, None, {"x": 3, "y": 4}]
    assert column.children[0].buffers[1].data_ptr == points.storage.field(0).buffers()[1].address
    back = pa.array(column)
    assert back.type == points.type and back.equals(points)
