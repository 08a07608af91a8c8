# An agent and the kit, for the Jobs: the same image on the head and on every worker, so that versions are equal.
# Build it in the agent's project, beside a .dockerignore that names .env and runs/:
#   docker build -f agent.Dockerfile -t registry.example/agent:1.0.0 .
FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir "dreamgym-kit[ray,weaviate]==0.1.0" "ray[default]==2.60.0"
WORKDIR /agent
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY . ./
USER 65532:65532
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1 RAY_USAGE_STATS_ENABLED=0
